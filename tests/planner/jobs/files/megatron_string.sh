#!/bin/sh
# One long string of arguments, as older scripts have it.
NNODES=${NNODES:-16}
TENSOR=${TENSOR:-4}
if [ -z "$CHECKPOINTS" ]; then
    CHECKPOINTS=/scratch/checkpoints
fi

options=" \
  --tensor-model-parallel-size ${TENSOR} \
  --pipeline-model-parallel-size=8 \
  --num-layers 40 --hidden-size 5120 --num-attention-heads 40 \
  --seq-length 4096 --max-position-embeddings 4096 \
  --micro-batch-size 2 --global-batch-size 512 \
  --train-samples 51_200_000 \
  --fp16 --recompute-activations \
  --save-interval 1000 --save $CHECKPOINTS"

if [ "$PRECISION" = "fp8" ]; then
    options="$options --fp8-format hybrid"
fi

run_cmd="python -u pretrain_gpt.py ${options}"
srun -N ${NNODES} --gpus-per-node=8 -l bash -c "${run_cmd}"
