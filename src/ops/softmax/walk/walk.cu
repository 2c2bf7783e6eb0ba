// Every step of the walk in one translation unit: most of what a step of its own would take to
// compile is the headers, which all steps share.

#include "ops/softmax/walk/00_naive.cu"
#include "ops/softmax/walk/01_block_serial.cu"
#include "ops/softmax/walk/02_shared.cu"
#include "ops/softmax/walk/03_vec4.cu"
#include "ops/softmax/walk/04_warp_shuffle.cu"
#include "ops/softmax/walk/05_online.cu"
#include "ops/softmax/walk/06_register_packed.cu"
#include "ops/softmax/walk/07_register_shared_medium.cu"
#include "ops/softmax/walk/08_register_shared_extreme.cu"
#include "ops/softmax/walk/09_two_pass_vector.cu"
#include "ops/softmax/walk/10_split_k.cu"
#include "ops/softmax/walk/11_split_k_single.cu"
