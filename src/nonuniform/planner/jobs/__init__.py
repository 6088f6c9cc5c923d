"""Descriptions of jobs that people already have, read: what each job is, and how that is known."""

from __future__ import annotations

from nonuniform.planner.jobs.description import JobDescription
from nonuniform.planner.jobs.fact import Fact, shown
from nonuniform.planner.jobs.read import ReadJob, read_job, with_gpus

__all__ = ["Fact", "JobDescription", "ReadJob", "read_job", "shown", "with_gpus"]
