"""Tables and figures to HTML, and space-time diagrams of violations."""
