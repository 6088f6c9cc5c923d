"""How large a unit should be, for a module and a job: never a question of the present degree.

In: heads, columns or rows, and the degrees a job may run at. Out: which units to cut.
DESIGN: "The kind of unit belongs to the module and the job, not to the degree".
Does not know: tensors or names.
"""

from __future__ import annotations

from functools import lru_cache

from nonuniform.layout.nested import nested_layout

BLOCKS = (128, 64, 32, 16, 8, 4, 2)
WORST_IMBALANCE = 1.02


def kv_of_query(query: int, heads: int, kv_heads: int) -> int:
    """The KV head that a query head reads, also where heads do not divide."""
    return query * kv_heads // heads


def group_load_sum(heads: int, kv_heads: int, degrees: range) -> int:
    """Largest load in query heads, summed over `degrees`, when whole KV groups are cut."""
    return heads // kv_heads * _balanced_load_sum(kv_heads, degrees)


def query_load_sum(heads: int, degrees: range) -> int:
    """The same when single query heads are cut."""
    return _balanced_load_sum(heads, degrees)


def cut_in_groups(heads: int, kv_heads: int, degrees: range, allow_empty: bool) -> bool:
    """Whether attention is cut in KV groups rather than in query heads; ties: groups.

    Groups that would leave a rank empty are no choice where empty ranks are refused.
    """
    if heads % kv_heads or (kv_heads < degrees[-1] and not allow_empty):
        return False
    return group_load_sum(heads, kv_heads, degrees) <= query_load_sum(heads, degrees)


@lru_cache(maxsize=256)
def row_block(rows: int, base: int, min_degree: int) -> int:
    """The largest block of rows (or columns) that costs at most 2% over min_degree..base.

    A block that would leave a rank empty is no choice, even if the largest load stays the same.
    """
    degrees = range(min_degree, base + 1)
    limit = WORST_IMBALANCE * _balanced_load_sum(rows, degrees)
    for block in BLOCKS:
        if -(-rows // block) < base:
            continue
        if sum(block_load(rows, block, base, degree) for degree in degrees) <= limit:
            return block
    return 1


def block_load(rows: int, block: int, base: int, degree: int) -> int:
    """Largest number of real rows on one rank; the last block may be short."""
    blocks = -(-rows // block)
    layout = nested_layout(blocks, base, degree)
    loads = [size * block for size in layout.sizes]
    loads[layout.owners(blocks - 1)[0]] -= blocks * block - rows
    return max(loads)


def _balanced_load_sum(units: int, degrees: range) -> int:
    return sum(-(-units // degree) for degree in degrees)
