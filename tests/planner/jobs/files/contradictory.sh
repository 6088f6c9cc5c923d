torchrun --nproc_per_node 8 --nnodes 12 pretrain_gpt.py \
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 \
  --num-layers 64 --hidden-size 8192 --num-attention-heads 64 \
  --micro-batch-size 1 --global-batch-size 128 --seq-length 4096 --bf16
