"""One run of any size judged window by window, each in memory that does not grow with the run.

A message's window depends on its name alone, so that all rows about it meet in one window (`cutting`). What
speaks of one message is judged there. What speaks of order is judged from short summaries: a site's log falls
into fragments, one for each stretch within a window, and a window says how its fragments reach one another
(`window`). The driver glues the fragments (`gluing`), and the windows that need it are judged again with what
enters them from outside. Any cuts give the same result; good ones give few fragments.
"""
