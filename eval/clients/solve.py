"""Solves the programs whose files are named on standard input, a line each, and prints what came of each as JSON.

HiGHS looks for the optimum itself, not for something close to it.
"""

import json
import sys

import highspy

for line in sys.stdin:
    solver = highspy.Highs()
    solver.silent()
    for option in ("mip_rel_gap", "mip_abs_gap"):
        solver.setOptionValue(option, 0.0)
    solver.setOptionValue("threads", 1)
    if solver.readModel(line.rstrip("\n")) != highspy.HighsStatus.kOk:
        sys.exit(f"{line.rstrip()} is no program that HiGHS reads")
    solver.run()
    status = solver.getModelStatus()
    solved = {"status": solver.modelStatusToString(status)}
    if status == highspy.HighsModelStatus.kOptimal:
        names = solver.getLp().col_names_
        values = solver.getSolution().col_value
        solved["least"] = solver.getObjectiveValue()
        solved["values"] = {name: value for name, value in zip(names, values) if name[0] == "w"}
    print(json.dumps(solved), flush=True)
