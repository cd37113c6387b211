"""Large logs to traces: lines as Arrow columns, in pieces; the same rows as `trace.adapters` makes of them.

`source` cuts files into pieces of whole lines. `shapes` turns the plain lines of a piece into columns, and
leaves every other line to the format's own parser. `staging` keeps a piece's records, apart by message, and
tells what else of it matters. `ranks` puts the pieces together: steps, numbers, sites. A `share` has all
records of some messages: `domains` finds their domains and the sites that they are for, and `rows` writes
their rows. `trace.adapters.numbering` states the rules; tests compare the two.
"""
