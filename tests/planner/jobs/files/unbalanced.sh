#!/bin/bash
NAME="never closed
torchrun pretrain_gpt.py --num-layers 24 --micro-batch-size 1
