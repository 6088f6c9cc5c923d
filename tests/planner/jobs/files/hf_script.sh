#!/bin/bash
deepspeed --num_nodes 4 --num_gpus 8 train.py \
  --model_name_or_path "meta/<b>big</b>" \
  --per_device_train_batch_size 2 --gradient_accumulation_steps=4 \
  --max_steps 1000 --bf16 True --deepspeed hf_folder/ds_own.json
