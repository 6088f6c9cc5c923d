#!/bin/bash
# Nothing of this may be run.
rm -rf /tmp/nonuniform-must-not-run; touch /tmp/nonuniform-was-run
A=$(touch /tmp/nonuniform-was-run; echo 8)
B=`touch /tmp/nonuniform-was-run`
eval "touch /tmp/nonuniform-was-run"
torchrun --nnodes $(scontrol show hostnames | wc -l) --nproc_per_node gpu pretrain_gpt.py \
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \
  --micro-batch-size 1 --global-batch-size 16 --bf16 --train-iters $ITERATIONS \
  --tensor-model-parallel-size $((2 + 2 * 3)) $(cat more.args) <<EOF
--hidden-size 1
EOF
