"""A trace judged while it grows: the windows of `antiphon.audit.windows`, closed one after another.

New rows arrive as parts of sites' logs (`arrivals`). A run keeps how far each log has come, cuts off a window
whenever the leading site has come far enough, and deals the parts out to the windows (`run`). A window is
judged once every site has passed it, and again if a row comes late (`windows`). Rows and summaries lie in a
database on disk (`store`), so memory does not grow with the run, and an audit that is started again goes on.
At any time the verdict on all rows there are can be asked for (`audit`).
"""
