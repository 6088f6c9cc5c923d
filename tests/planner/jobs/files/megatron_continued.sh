torchrun \
    --nproc-per-node "8" \
    --nnodes '128' \
    --node-rank "$RANK" \
  pretrain_gpt.py \
    --num-layers 126 --hidden-size 16384 \
    --num-attention-heads "128" --group-query-attention --num-query-groups 8 \
    --ffn-hidden-size 53248 --swiglu --untie-embeddings-and-output-weights \
    --vocab-size 128256 \
    "--seq-length" '8192' \
    --tensor-model-parallel-size \
        8 \
    --pipeline-model-parallel-size 16 --account-for-embedding-in-pipeline-split \
    --account-for-loss-in-pipeline-split \
    --context-parallel-size 2 \
    --micro-batch-size 1 --global-batch-size 1024 --train-iters 500000 --bf16 \
    --fp8-format hybrid --recompute-granularity full --recompute-method uniform \
    --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params
