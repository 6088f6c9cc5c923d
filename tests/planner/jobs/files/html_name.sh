#!/bin/bash
#SBATCH --job-name="<script>alert('x')</script>"
#SBATCH --nodes=2
#SBATCH --gres=gpu:h100:8
#SBATCH --qos=preemptible
python pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \
  --seq-length 2048 --micro-batch-size 1 --global-batch-size 16 --bf16 \
  --tensor-model-parallel-size 8 --note "<img src=x onerror=alert(1)>"
