// Every step of the walk in one translation unit: most of what a step of its own would take to
// compile is the headers, which all steps share.

#include "ops/attention/walk/00_naive.cu"
#include "ops/attention/walk/01_fused_softmax.cu"
#include "ops/attention/walk/02_fused_tuned.cu"
#include "ops/attention/walk/03_flash_wmma.cu"
