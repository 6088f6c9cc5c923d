"""Launch scripts: what commands they run with which arguments, found without running anything."""

from __future__ import annotations

from nonuniform.planner.jobs.shell.arguments import Argument, arguments
from nonuniform.planner.jobs.shell.expand import Field
from nonuniform.planner.jobs.shell.script import Command, Script, follow
from nonuniform.planner.jobs.shell.slurm import directives

__all__ = ["Argument", "Command", "Field", "Script", "arguments", "directives", "follow"]
