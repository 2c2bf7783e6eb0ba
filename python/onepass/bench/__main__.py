"""python -m onepass.bench: onepass beside its peers."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

SHAPES = ",".join(f"4096x{2**power}" for power in range(8, 18))
ATTENTION_SHAPES = {
    "cuda": ",".join(
        f"{16384 // keys}x16x{keys}x128" for keys in (512, 1024, 2048, 4096, 8192, 16384)
    ),
    "cpu": ",".join(f"{2048 // keys}x8x{keys}x64" for keys in (256, 512, 1024, 2048)),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m onepass.bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    plot = commands.add_parser("plot", help="draw what --json kept")
    plot.add_argument("json")
    plot.add_argument("picture", help="a name that ends in .png or .svg")

    overhead = commands.add_parser("overhead", help="what a call costs the host")
    overhead.add_argument("--device", choices=["cpu", "cuda"])
    overhead.add_argument("--json", help="a file to keep the results in")

    for op in ("softmax", "log_softmax", "logsumexp", "cross_entropy", "cross_entropy_training",
               "topk", "softmax_topk", "sample", "gate", "all"):  # fmt: skip
        command = commands.add_parser(
            op, help="each of the above" if op == "all" else f"{op} beside its peers"
        )
        command.add_argument("--shapes", default=SHAPES, help="ROWSxCOLS,… (%(default)s)")
        _add_common(command)

    command = commands.add_parser(
        "attention", help="attention beside PyTorch's backends and others, TFLOP/s"
    )
    command.add_argument(
        "--shapes", help="BATCHxHEADSxKEYSxDIM,… (as many tokens in each, few without a GPU)"
    )
    command.add_argument("--kv-heads", type=int, help="as many as heads unless given")
    command.add_argument("--causal", action="store_true")
    command.add_argument("--decode", action="store_true", help="one query a sequence")
    _add_common(command)

    command = commands.add_parser(
        "attention_backward", help="attention's gradients and PyTorch's in turns, with rests"
    )
    command.add_argument(
        "--shapes", default="1x8x1024x64", help="BATCHxHEADSxTOKENSxDIM,… (%(default)s)"
    )
    command.add_argument("--causal", action="store_true")
    command.add_argument("--dtype", default="float32", help="several with commas (%(default)s)")
    command.add_argument("--device", choices=["cpu", "cuda"], help="a GPU where there is one")
    command.add_argument("--rounds", type=int, default=15, help="calls of each (%(default)s)")
    command.add_argument(
        "--rest", type=float, default=0.2, help="seconds before each call (%(default)s)"
    )
    command.add_argument("--json", help="a file to keep the results in")

    options = parser.parse_args(arguments)
    if options.command == "plot":
        return _plot(json.loads(Path(options.json).read_text()), options.picture)
    try:
        import torch
    except ImportError:
        print(
            "onepass.bench: torch is not installed, and everything here is measured on its tensors",
            file=sys.stderr,
        )
        return 3
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    commands_of = {"overhead": _overhead, "attention_backward": _backward}
    return commands_of.get(options.command, _measure)(options)


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--dtype", default="float16", help="of torch's, several with commas (%(default)s)"
    )
    command.add_argument("--device", choices=["cpu", "cuda"], help="a GPU where there is one")
    command.add_argument("--peers", help="only these, with commas")
    command.add_argument(
        "--seconds", type=float, default=0.3, help="for each measurement (%(default)s)"
    )
    command.add_argument("--json", help="a file to keep the results in")
    command.add_argument("--plot", help="a picture, .png or .svg")


def _overhead(options: argparse.Namespace) -> int:
    from onepass.bench import _report
    from onepass.bench._overhead import overhead

    rows = overhead(options.device)
    for name, microseconds in rows:
        print(f"{name:60} {microseconds:6.2f} µs a call")
    if options.json:
        kept = [{"call": name, "us": microseconds} for name, microseconds in rows]
        _report.write_json(options.json, options.device, kept)
    return 0


def _backward(options: argparse.Namespace) -> int:
    from onepass.bench import _backward, _report

    rows = _backward.measure(
        _shapes(options.shapes), options.dtype.split(","), options.device, options.causal,
        options.rounds, options.rest,
    )  # fmt: skip
    print(_report.table(rows))
    if options.json:
        _report.write_json(options.json, options.device, rows)
    return 0


def _shapes(text: str) -> list[tuple[int, ...]]:
    return [tuple(map(int, shape.split("x"))) for shape in text.split(",")]


def _measure(options: argparse.Namespace) -> int:
    from onepass.bench import _attention, _report
    from onepass.bench._run import row_cases, run

    text = options.shapes or ATTENTION_SHAPES[options.device]
    where = (_shapes(text), options.dtype.split(","), options.device)
    if options.command == "attention":
        cases = _attention.cases(*where, options.kv_heads, options.causal, options.decode)
    else:
        cases = row_cases(options.command, *where)
    peers = options.peers.split(",") if options.peers else None
    rows = run(cases, options.device, peers, options.seconds)
    print(_report.table(rows))
    if options.json:
        _report.write_json(options.json, options.device, rows)
    if options.plot:
        return _plot(
            {"environment": _report.environment(options.device), "rows": rows}, options.plot
        )
    return 0


def _plot(measured: dict[str, Any], picture: str) -> int:
    from onepass.bench import _report

    try:
        _report.plot(measured, picture)
    except ImportError:
        print("onepass.bench: matplotlib is not installed; keep --json FILE, and elsewhere: "
              "python -m onepass.bench plot FILE picture.png", file=sys.stderr)  # fmt: skip
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
