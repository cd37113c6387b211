"""Simulate a group under faults, and see a broken one explained.

Run it with: python examples/simulate_and_check.py
"""

import antiphon

kept = antiphon.simulate("sequencer", members=5, messages=500, loss=0.1, churn=2, seed=3)
print(kept.metrics["deliveries"], "deliveries,", len(kept.violations), "violations")

broken = antiphon.simulate("sequencer", members=5, messages=500, sabotage="swap", seed=3)
print(len(broken.violations), "violations; the first:")
print(broken.violations[0].explanation)
