"""`millstream completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # re-exported by habit

from millstream.cli.error_messages import Debug

__all__ = ["Shell", "completion"]


class Shell(StrEnum):
    """The shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)], debug: Debug = False
) -> None:
    """Print the script that makes a shell complete commands and options.

    For bash: source <(millstream completion bash), in ~/.bashrc. For zsh: write it to a file _millstream in
    a folder of $fpath. For fish: millstream completion fish > ~/.config/fish/completions/millstream.fish
    """
    script = get_completion_script(
        prog_name="millstream", complete_var="_MILLSTREAM_COMPLETE", shell=shell.value
    )
    typer.echo(script.strip())
