"""Writes the tables of docs/peers-suites.md: `python -m suites`, in python/tests, with the packages
of its tests."""

from suites import models, onnx_cases, opinfo, table, torch_errors

table.write("onnx", "onnx", onnx_cases.cases())
table.write("opinfo", "torch", opinfo.all_cases())
table.write("errors", "torch", torch_errors.cases())
table.write("models", "transformers", models.cases())
