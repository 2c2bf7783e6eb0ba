"""Writes the tables of docs/peers-suites.md: `python -m suites`, in python/tests, with the packages of its tests."""

from suites import onnx_cases, table

table.write("onnx", "onnx", onnx_cases.cases())
