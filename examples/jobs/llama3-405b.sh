#!/bin/bash
# Llama 3 405B as Megatron-LM is told of it: replicas of 14 domains of 8 GPUs.
#SBATCH --job-name=llama3-405b
#SBATCH --nodes=2016
#SBATCH --gpus-per-node=8

TP=8
PP=14
MODEL_ARGS=(
  --num-layers 126
  --hidden-size 16384
  --ffn-hidden-size 53248
  --num-attention-heads 128
  --group-query-attention --num-query-groups 8
  --seq-length 8192
  --swiglu --normalization RMSNorm
  --untie-embeddings-and-output-weights
)
torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 pretrain_gpt.py \
  "${MODEL_ARGS[@]}" \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel \
  --micro-batch-size 1 --global-batch-size 2016 --train-iters 950000 \
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --bf16 --save-interval 200
