"""`antiphon groups`: the paper's example, joins and leaves in words, and files that make no sense."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from antiphon.cli.main import run

Capture = pytest.CaptureFixture[str]
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "groups.toml")


def says(capsys: Capture, *tokens: str) -> tuple[int, str, str]:
    code = run(["groups", *tokens])
    out, err = capsys.readouterr()
    return code, out, " ".join(err.split())


def test_figures_2_to_4_as_they_are_printed(capsys: Capture) -> None:
    code, out, err = says(capsys, EXAMPLE)
    assert code == 0
    assert err == ""
    assert out == (
        "4 groups over 18 sites: 10 meta-groups in 1 tree\n"
        "\n"
        "Trees of meta-groups (● primary site):\n"
        "  <ABC>       ● s17, s18  primary of A, B, C\n"
        "  ├─ <AB>     ● s08, s09\n"
        "  ├─ <AC>     ● s11\n"
        "  ├─ <BC>     ● s14, s15\n"
        "  ├─ <A>      ● s01, s02\n"
        "  ├─ <B>      ● s03, s04\n"
        "  ├─ <C>      ● s05, s10\n"
        "  └─ <AD>     ● s12, s13  primary of D; passes C on\n"
        "     ├─ <CD>  ● s16\n"
        "     └─ <D>   ● s06, s07\n"
        "\n"
        "A message to each group:\n"
        "  group  members  primary  enters at  messages  hops  depth  extra  busiest site  its load\n"
        "  A      9        <ABC>    s17        9         3     2      0      s17           6\n"
        "  B      8        <ABC>    s17        8         3     2      0      s17           5\n"
        "  C      8        <ABC>    s17        9         3     3      1      s17           6\n"
        "  D      5        <AD>     s12        5         3     2      0      s12           4\n"
        "\n"
        "With one message to each group, s17 is busiest: it sends and receives 17 of 31 messages.\n"
    )


def test_json_tells_the_same(capsys: Capture) -> None:
    for shape in ("shallow", "printed"):
        code, out, _ = says(capsys, EXAMPLE, "--shape", shape, "--json")
        told = json.loads(out)
        assert code == 0
        assert (told["groups"], told["sites"], told["trees"], len(told["meta_groups"])) == (4, 18, 1, 10)
        nodes = {"".join(node["label"]): node for node in told["meta_groups"]}
        assert nodes["ABC"]["parent"] is None
        assert nodes["CD"]["parent"] == ["A", "D"]
        assert nodes["AD"]["flows"] == ["A", "C"]
        routes = {route["group"]: route for route in told["routes"]}
        assert routes["C"]["extra"] == [["A", "D"]]
        assert routes["D"]["primary"] == ["A", "D"]
        assert routes["D"]["entry"] == "s12"
        assert told["busiest"] == {"site": "s17", "load": 17}
        assert told["change"] is None


REPLACED = "A running cluster keeps 0 trees; 1 finish what is under way while 1 begin, and no site stops."
BEGUN = "A running cluster keeps 1 tree; 0 finish what is under way while 1 begin, and no site stops."
KEPT = "A running cluster keeps 1 tree and replaces none."
SERVED = f"{KEPT} s17 goes on with its work for <ABC> until its tree is replaced."


@pytest.mark.parametrize(
    ("moves", "sentences"),
    [
        (
            ["--join", "s02", "B"],
            [
                "s02 moves from <A> to <AB>.",
                "No meta-group appears or disappears, so no tree has other links.",
            ],
        ),
        (
            ["--join", "s02", "C", "--join", "s02", "B"],
            [
                "s02 moves from <A> to <ABC>.",
                "No meta-group appears or disappears, so no tree has other links.",
            ],
        ),
        (
            ["--leave", "s17", "C"],
            [
                "s17 moves from <ABC> to <AB>.",
                "s17 was the primary site of <ABC> and moves away; now s18 is.",
                "No meta-group appears or disappears, so no tree has other links.",
            ],
        ),
        (
            ["--leave", "s16", "C"],
            [
                "s16 moves from <CD> to <D>.",
                "The meta-group <CD> disappears: its last site is gone.",
                "The tree of <ABC> is planted anew: of the 9 meta-groups that stay, none get another parent.",
            ],
        ),
        (
            ["--join", "new", "E"],
            [
                "new comes into <E>.",
                "The meta-group <E> appears.",
                "A tree begins: <E>.",
                "Group E has members now; its messages enter at new.",
                "Untouched: 1 other tree (<ABC>).",
            ],
        ),
        (
            ["--leave", "s12", "A", "--leave", "s13", "A"],
            [
                "s12 moves from <AD> to <D>.",
                "s13 moves from <AD> to <D>.",
                "The meta-group <AD> disappears: its last site is gone.",
                "The tree of <ABC> is planted anew: of the 9 meta-groups that stay, 2 get another parent.",
                "Messages to D enter at s16 in <CD>, no longer in <AD>.",
            ],
        ),
    ],
    ids=[
        "same shape",
        "two joins",
        "primary goes",
        "meta-group goes",
        "group begins",
        "primary meta-group goes",
    ],
)
def test_a_change_is_told_in_sentences(capsys: Capture, moves: list[str], sentences: list[str]) -> None:
    code, out, _ = says(capsys, EXAMPLE, *moves)
    assert code == 0
    *told, agreed = out.split("\n\n")[0].splitlines()
    assert told == sentences
    kept = {
        "--join new E": BEGUN,
        "--join s02 B": KEPT,
        "--join s02 C --join s02 B": KEPT,
        "--leave s17 C": SERVED,
    }
    assert agreed == kept.get(" ".join(moves), REPLACED)


def test_what_a_running_cluster_does_is_in_the_json(capsys: Capture) -> None:
    """As in the protocol itself: a join that alters no tree keeps it; a leave that deletes a meta-group does
    not."""
    _, out, _ = says(capsys, EXAMPLE, "--join", "s02", "B", "--json")
    assert json.loads(out)["change"]["agreed"] == {"kept": [[1, 0]], "handed_over": [], "planted": []}
    _, out, _ = says(capsys, EXAMPLE, "--leave", "s16", "C", "--json")
    assert json.loads(out)["change"]["agreed"] == {"kept": [], "handed_over": [[1, 0]], "planted": [[2, 0]]}


def test_trees_that_join_split_and_end(capsys: Capture, tmp_path: Path) -> None:
    apart = tmp_path / "apart.csv"
    apart.write_text("A,a\nA,b\nB,c\n")
    _, out, _ = says(capsys, str(apart), "--join", "b", "B")
    assert "The trees of <A>, <B> become one, <AB>: of the 2 meta-groups that stay, 2 get another" in out
    together = tmp_path / "together.csv"
    together.write_text("A,a\nA,b\nB,b\nB,c\n")
    _, out, _ = says(capsys, str(together), "--leave", "b", "A")
    assert "The tree of <AB> becomes those of <A>, <B>: of the 2 meta-groups that stay, 2 get" in out
    _, out, _ = says(capsys, str(apart), "--leave", "c", "B")
    assert "c is in no group any more and leaves <B>.\n" in out
    assert "The tree of <B> ends.\nGroup B has no members any more.\nUntouched: 1 other tree (<A>)." in out
    assert out.endswith("Without members: B.\n")


def test_what_a_change_alters_is_in_the_json_too(capsys: Capture) -> None:
    _, out, _ = says(capsys, EXAMPLE, "--leave", "s16", "C", "--json")
    told = json.loads(out)
    assert told["change"]["alters_trees"] is True
    assert told["change"]["deleted"] == [["C", "D"]]
    assert len(told["meta_groups"]) == 9


def test_the_drawing_is_written_and_shows_what_is_new(capsys: Capture, tmp_path: Path) -> None:
    picture = tmp_path / "forest.svg"
    code, _, _ = says(capsys, EXAMPLE, "--join", "s03", "D", "--svg", str(picture))
    assert code == 0
    texts = [
        "".join(node.itertext()) for node in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}g")
    ]
    assert sum("new" in text and "<BD>" in text for text in texts) == 1
    code, _, err = says(capsys, EXAMPLE, "--svg", str(tmp_path / "no" / "such.svg"))
    assert code == 2
    assert "cannot be written" in err


def test_csv_with_either_header_comments_blanks_and_repeats(capsys: Capture, tmp_path: Path) -> None:
    tables = [
        "group,site\nA,s1\nA, s2\n\nB,s2\nB,s2\n",
        "site,group\ns1,A\ns2,A\ns2,B\n",
        '\ufeff# who is where\r\n"A",s1\r\nA,s2\r\nB,s2\r\n',
    ]
    answers = set()
    for number, table in enumerate(tables):
        path = tmp_path / f"{number}.CSV"
        path.write_text(table, encoding="utf-8", newline="")
        code, out, _ = says(capsys, str(path), "--json")
        assert code == 0
        answers.add(out)
    assert len(answers) == 1


def test_long_tables_are_cut_and_strange_names_are_shown_safely(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "many.toml"
    lists = [f'"g{number:03d}" = ["s{number}", "s{number + 1}"]' for number in range(200)]
    path.write_text("\n".join(["[groups]", *lists, '"\\u001b[2J" = ["\\u202e"]']), encoding="utf-8")
    code, out, err = says(capsys, str(path))
    assert code == 0
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert len(out.splitlines()) < 140
    assert "--json has them all" in err


BAD_FILES = {
    "missing": ("no.toml", None, "cannot be read: No such file or directory.", ""),
    "other": ("groups.yaml", "A: [s1]", "neither TOML nor CSV by its name.", "Name it .toml or .csv."),
    "binary": ("groups.csv", b"A,\xff", "is no text in UTF-8", ""),
    "broken": ("groups.toml", "[groups]\nA = [", "is no TOML: ", "A = ["),
    "deep": ("groups.toml", f"[groups]\nA = {'[' * 5000}{']' * 5000}", "nests too deep.", "A = ["),
    "no table": ("groups.toml", 'A = ["s1"]', "has no table [groups].", "A table [groups]"),
    "no list": (
        "groups.toml",
        '[groups]\nA = ["s1"]\nB = 7',
        "line 3: group B is no list of sites.",
        "A table",
    ),
    "no name": (
        "groups.toml",
        "[groups]\n\nA = [1]",
        "line 3: group A has the member 1, which is no name.",
        "[",
    ),
    "empty": ("groups.toml", "[groups]", "names no groups.", "A table"),
    "empty csv": ("groups.csv", "group,site\n", "names no groups.", "A,s1"),
    "short row": ("groups.csv", "A,s1\nB\n", "line 2: 1 cells, not two names.", "A,s1"),
    "empty cell": ("groups.csv", "A,s1\nB,\n", "line 2: an empty cell, not two names.", "A,s1"),
    "quote": ("groups.csv", 'A,s1\n"B,s2\n', "no CSV (unexpected end of data).", "A,s1"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_gets_a_sentence_with_its_line_and_a_hint(
    capsys: Capture, tmp_path: Path, case: str
) -> None:
    name, content, sentence, hint = BAD_FILES[case]
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = says(capsys, str(tmp_path / name))
    assert code == 2
    assert out == ""
    assert sentence in err
    assert hint in err
    assert "Traceback" not in err


def test_moves_that_make_no_sense_are_refused(capsys: Capture) -> None:
    for moves, sentence in (
        (["--join", "s01", "A"], "s01 cannot join A: it is a member already."),
        (["--leave", "s01", "B"], "s01 cannot leave B: it is not a member."),
        (["--join", "s01"], "--join"),
    ):
        code, out, err = says(capsys, EXAMPLE, *moves)
        assert code == 2
        assert out == ""
        assert sentence in err
