// Every step of the walk in one translation unit: most of what a step of its own would take to compile is
// the headers, which all steps share.

#include "ops/softmax/00_naive.cu"
#include "ops/softmax/01_block_serial.cu"
#include "ops/softmax/02_shared.cu"
#include "ops/softmax/03_vec4.cu"
#include "ops/softmax/04_warp_shuffle.cu"
#include "ops/softmax/05_online.cu"
#include "ops/softmax/06_register_packed.cu"
#include "ops/softmax/07_register_shared_medium.cu"
#include "ops/softmax/08_register_shared_extreme.cu"
#include "ops/softmax/09_two_pass_vector.cu"
#include "ops/softmax/10_split_k.cu"
#include "ops/softmax/11_split_k_single.cu"
