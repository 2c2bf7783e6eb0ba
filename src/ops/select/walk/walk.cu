// Every step of the walk in one translation unit: most of what a step of its own would take to
// compile is the headers, which all steps share.

#include "ops/select/walk/00_unfused.cu"
#include "ops/select/walk/01_three_pass_local.cu"
#include "ops/select/walk/02_warp_merge.cu"
#include "ops/select/walk/03_online_single_pass.cu"
