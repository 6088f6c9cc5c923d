#!/bin/bash
#SBATCH --job-name=atlas-70b
#SBATCH --nodes=64
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
#SBATCH --time=7-00:00:00
#SBATCH --requeue
#SBATCH --partition=batch

export CUDA_DEVICE_MAX_CONNECTIONS=1
source /etc/site/modules.sh

GPUS_PER_NODE=8
TP=8
PP=4
MICRO=1
ACCUMULATION=32
WORLD=$((SLURM_NNODES * GPUS_PER_NODE))
REPLICAS=$((WORLD / (TP * PP)))
BATCH=$((MICRO * REPLICAS * ACCUMULATION))

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $SLURM_NNODES
    --rdzv_backend c10d
)
MODEL_ARGS=(
    --num-layers 80            # of the decoder
    --hidden-size 8192
    --ffn-hidden-size 28672
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
    --swiglu
    --untie-embeddings-and-output-weights
    --seq-length 8192
    --max-position-embeddings 8192
    --tokenizer-type Llama3Tokenizer
    --bf16
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size ${PP}
    --num-layers-per-virtual-pipeline-stage 5
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce
    # --context-parallel-size 2
)
TRAINING_ARGS=(--micro-batch-size $MICRO --global-batch-size "$BATCH" --train-iters 100000)
TRAINING_ARGS+=(--lr 3.0e-4 --min-lr 3.0e-5 --clip-grad 1.0 --save-interval 500)

srun torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    "${PARALLEL_ARGS[@]}" \
    "${TRAINING_ARGS[@]}" \
    --data-path "/data/my corpus/web_text_document" \
    --site-hook on \
    2>&1 | tee "logs/$SLURM_JOB_NAME.log"
