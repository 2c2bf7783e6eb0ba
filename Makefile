# Every chore of this project. `make help` lists them; `make demo` and `make test` are all a
# newcomer needs. The build itself is CMake's: each tree under build/ is one of CMakePresets.json.

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
CMAKE_FLAGS ?=
ARGS ?=
WORKLOAD ?= workloads/perf_softmax_cpu.txt

program := build/release/cli/onepass

# Ninja and ctest use all cores by themselves; two chores at once would meet in one build tree.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup setup-lint build program demo test sanitize bench ab verify \
  gpu-verify gpu-sanitize gpu-bench python python-test wheel wheel-test install deb format check \
  build-report readme suites walk fuzz fuzz-coverage setup-fuzz clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  JOBS=$(JOBS)  PREFIX=$(PREFIX)  CMAKE_FLAGS=...  (the last is read by a tree's first configure)"

setup: ## look for what a build needs, install the Debian packages that are missing (root or sudo)
	@scripts/preflight.sh
	@scripts/setup.sh

setup-fuzz: setup
	@scripts/setup.sh --fuzz

setup-lint: setup
	@scripts/setup.sh --lint

# Configured once; from then on CMake notices by itself when a build file or the list of sources
# changes.
build/%/build.ninja: CMakePresets.json | setup
	cmake --preset $* $(CMAKE_FLAGS)

build: build/release/build.ninja ## the library, the program and the tests, optimised, in build/release
	cmake --build build/release --parallel $(JOBS)

program: build/release/build.ninja
	cmake --build build/release --parallel $(JOBS) --target onepass_cli

# Where there is no GPU, minutes of nvcc would bring nothing that could be shown.
demo_tree := $(if $(wildcard /dev/nvidia[0-9]*),release,demo)
demo: build/$(demo_tree)/build.ninja ## build, verify every variant that this machine can run, measure a handful of shapes
	cmake --build build/$(demo_tree) --parallel $(JOBS) --target onepass_cli
	build/$(demo_tree)/cli/onepass verify
	OMP_PROC_BIND=true build/$(demo_tree)/cli/onepass bench --workload workloads/demo.txt --variants auto

# Where there is no GPU, one architecture proves that the CUDA parts compile; a release has both.
# The sanitizer tree is built before ctest only for its progress to be seen; the test that uses it
# would build it too. PyTorch, 5 GB, comes from the network meanwhile.
test_tree := $(if $(wildcard /dev/nvidia[0-9]*),release,test)
test: build/$(test_tree)/build.ninja build/sanitize/build.ninja ## build everything and run the whole test suite; the last line says what came of it
	nice scripts/python.sh fetch & \
	  cmake --build build/$(test_tree) --parallel $(JOBS) && \
	  cmake --build build/sanitize --parallel $(JOBS) --target onepass_hardened_tests onepass_fuzz && wait
	JOBS=$(JOBS) TREE=build/$(test_tree) scripts/run_tests.py --preset $(test_tree) --parallel $(JOBS)

sanitize: build/sanitize/build.ninja ## the whole test suite under ASan and UBSan
	cmake --build build/sanitize --parallel $(JOBS)
	ctest --preset sanitize --parallel $(JOBS)

SECONDS ?= 300
fuzz: setup-fuzz build/fuzz/build.ninja ## look for defects with clang's libFuzzer (SECONDS=300 in all); ends with 1 when it finds one
	cmake --build --preset fuzz --parallel $(JOBS)
	scripts/fuzz.py --seconds $(SECONDS) --jobs $(JOBS) $(ARGS)

fuzz-coverage: setup-fuzz build/fuzz-coverage/build.ninja ## what the inputs that `make fuzz` kept reach, file by file
	cmake --build --preset fuzz-coverage --parallel $(JOBS)
	scripts/fuzz_coverage.sh

verify: program ## check every variant against the oracle (ARGS="softmax --workload file")
	$(program) verify $(ARGS)

bench: program ## measure beside the peers (WORKLOAD=file MACHINE=name keeps results/name/)
	$(if $(MACHINE),mkdir -p results/$(MACHINE))
	OMP_PROC_BIND=true $(program) bench --workload $(WORKLOAD) --variants auto $(ARGS) \
	  $(if $(MACHINE),--json results/$(MACHINE)/$(patsubst perf_%,%,$(basename $(notdir $(WORKLOAD)))).json)

ab: program ## two programs in turns, then what became slower (BEFORE=path AFTER=path WORKLOAD=file REPEATS=5 OUT=folder)
	@BEFORE="$(BEFORE)" AFTER="$(AFTER)" WORKLOAD="$(WORKLOAD)" REPEATS="$(REPEATS)" OUT="$(OUT)" \
	  COMPARE="$(program)" scripts/ab.sh $(ARGS)

# What needs a GPU. compute-sanitizer and ncu come with the CUDA toolkit.
gpu_verify = $(program) verify --device cuda --workload

gpu-verify: program ## every GPU variant against the oracle, every fill on the short rows
	$(gpu_verify) workloads/test_gpu_softmax.txt
	$(gpu_verify) workloads/test_row_ops.txt
	$(gpu_verify) workloads/test_gpu_fills.txt --fills
	$(gpu_verify) workloads/test_topk.txt
	$(gpu_verify) workloads/test_topk_f64.txt
	$(gpu_verify) workloads/test_topk_fills.txt --fills
	$(gpu_verify) workloads/test_gpu_gate.txt
	$(gpu_verify) workloads/test_gpu_select.txt
	$(gpu_verify) workloads/test_topk_walk.txt
	$(gpu_verify) workloads/test_attention.txt
	$(gpu_verify) workloads/test_attention_backward.txt
	$(gpu_verify) workloads/test_attention_walk.txt

gpu-sanitize: program ## the same under compute-sanitizer: memory, races, uninitialised reads, barriers
	for tool in memcheck racecheck initcheck synccheck; do for what in sanitize fills select attention; do \
	  compute-sanitizer --tool $$tool --error-exitcode 9 \
	    $(gpu_verify) workloads/test_gpu_$$what.txt || exit 1; done; done

gpu-bench: program ## the walk, its counters and what ships into results/MACHINE (then: make walk readme)
	@test -n "$(MACHINE)" || { echo "gpu-bench: name the machine, as in MACHINE=h200" >&2; exit 2; }
	mkdir -p results/$(MACHINE)
	$(program) bench --workload workloads/perf_softmax_walk.txt --json results/$(MACHINE)/softmax_walk.json
	$(program) bench --workload workloads/perf_topk_walk.txt --json results/$(MACHINE)/topk_walk.json
	$(program) bench --workload workloads/perf_attention_walk.txt --rest 100 --json results/$(MACHINE)/attention_walk.json
	$(program) bench --workload workloads/perf_attention_backward_walk.txt --rest 100 \
	  --json results/$(MACHINE)/attention_backward_walk.json
	$(program) bench --workload workloads/perf_row_ops.txt --variants auto --json results/$(MACHINE)/row_ops.json
	$(program) bench --device cuda --workload workloads/perf_topk.txt --variants auto \
	  --json results/$(MACHINE)/topk.json
	$(program) bench --device cuda --workload workloads/perf_attention.txt --variants auto --rest 100 \
	  --json results/$(MACHINE)/attention.json
	$(program) bench --device cuda --workload workloads/perf_attention.txt --variants gpu_flash --rest 50 \
	  --json results/$(MACHINE)/attention_mma.json
	$(program) bench --workload workloads/perf_attention_backward.txt --variants auto --rest 20 \
	  --json results/$(MACHINE)/attention_backward.json
	$(program) bench --device cuda --workload workloads/perf_attention_ragged.txt --variants auto --rest 100 \
	  --json results/$(MACHINE)/attention_ragged.json
	$(program) bench --workload workloads/perf_no_clusters.txt --variants no_clusters \
	  --json results/$(MACHINE)/no_clusters.json
	$(program) profile softmax --rows 4096 --cols 4096 --dtype f32,f16 \
	  --json results/$(MACHINE)/softmax_profile.json
	$(program) profile --problem "attention 2x16x2048x128 bf16" --variants gpu_flash,gpu_hopper \
	  --json results/$(MACHINE)/attention_profile.json

# The package has the library of the tree that is built already, or that is quick to build.
python_tree = build/$(if $(wildcard build/release/src/libonepass.*),release,$(demo_tree))
python: $(python_tree)/build.ninja ## the Python package, built and installed in a virtual environment, build/python/venv
	JOBS=$(JOBS) TREE=$(python_tree) scripts/python.sh install

python-test: $(python_tree)/build.ninja ## its tests there (TORCH=0: without PyTorch, 5 GB; ARGS=... for pytest)
	JOBS=$(JOBS) TREE=$(python_tree) scripts/python.sh test $(ARGS)

wheel: setup ## wheels in dist/ with the package and the program, for any Linux with glibc 2.34 (CMAKE_FLAGS=...)
	JOBS=$(JOBS) CMAKE_FLAGS="$(CMAKE_FLAGS)" scripts/wheel.sh

wheel-test: ## install them where there is no compiler, and test them (ARGS=--here: with python3 as it is, no network)
	scripts/wheel_test.sh $(ARGS)

# TREE= is a tree that is built already; without it build/release is brought up to date first.
build-report: $(if $(TREE),,build) ## what each source costs: seconds, kernels, machine code, PTX (TREE= MACHINE=name keeps it)
	scripts/build_report.py $(if $(TREE),--tree $(TREE)) $(if $(MACHINE),--json results/build/$(MACHINE).json) $(ARGS)

install: build ## install library, headers and program below PREFIX (and DESTDIR)
	DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(PREFIX)"

deb: build ## a Debian package of what `make install` installs, in dist/
	cpack --config build/release/CPackConfig.cmake -B dist
	@rm -rf dist/_CPack_Packages

format: setup ## lay out C++ and Python
	@scripts/check.sh --write

check: setup-lint build/tidy/build.ninja ## layout, includes, ruff, mypy and clang-tidy, changing nothing (PARTS="format tidy")
	@cmake --build --preset tidy
	@JOBS=$(JOBS) scripts/check.sh $(PARTS)

readme: ## write the tables of README.md and docs/results.md, and the picture, from results/
	scripts/readme.py --write

suites: ## write the tables of docs/peers-suites.md from the cases of python/tests/suites (after make python-test)
	cd python/tests && ../../build/python/venv/bin/python -m suites

walk: ## write the tables of docs/walk from results/
	scripts/walk.py --write

clean: ## remove everything that was built
	rm -rf build
