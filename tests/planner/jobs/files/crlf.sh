MODEL="--num-layers 24 \
  --hidden-size 2048 \
  --num-attention-heads 16 --seq-length 2048"

python pretrain_gpt.py $MODEL \
  --tensor-model-parallel-size 2 --micro-batch-size 1 \
  --global-batch-size 64 --bf16
