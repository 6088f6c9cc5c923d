python -m torch.distributed.launch --nproc_per_node=8 --nnodes=4 pretrain_gpt.py \
  --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \
  --micro-batch-size 4 --global-batch-size 256 --train-iters 1000 --fp16
