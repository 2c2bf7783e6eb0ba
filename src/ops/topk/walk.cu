// Every step of the walk in one translation unit: most of what a step of its own would take to compile is
// the headers, which all steps share.

#include "ops/topk/00_unfused.cu"
#include "ops/topk/01_three_pass_local.cu"
#include "ops/topk/02_warp_merge.cu"
#include "ops/topk/03_online_single_pass.cu"
