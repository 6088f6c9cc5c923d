"""From one layout to another: gradient sync, labels, state transfer. Plans only, integers only."""

from nonuniform.reshard.labels import assign_labels
from nonuniform.reshard.layout_report import layout_report
from nonuniform.reshard.sync_plan import (
    BucketPlan,
    Slice,
    Span,
    assign_buckets,
    bucket_plans,
)
from nonuniform.reshard.transfer import (
    Holding,
    Target,
    TransferPlan,
    UnitMove,
    plan_transfer,
)

__all__ = [
    "BucketPlan",
    "Holding",
    "Slice",
    "Span",
    "Target",
    "TransferPlan",
    "UnitMove",
    "assign_buckets",
    "assign_labels",
    "bucket_plans",
    "layout_report",
    "plan_transfer",
]
