"""How tensors are cut: integers only. See `nested` for the layouts, `model_plan` for models."""

from nonuniform.layout.family import Family
from nonuniform.layout.model_plan import (
    ModelPlan,
    ModelShape,
    TensorCut,
    kv_of_query,
    local_kv_index,
    plan_llama,
)
from nonuniform.layout.nested import nested_layout, replicated_layout, shared_layout
from nonuniform.layout.units import Layout, Ownership

__all__ = [
    "Family",
    "Layout",
    "ModelPlan",
    "ModelShape",
    "Ownership",
    "TensorCut",
    "kv_of_query",
    "local_kv_index",
    "nested_layout",
    "plan_llama",
    "replicated_layout",
    "shared_layout",
]
