// onepass: softmax and everything built on it, reading each input byte from memory once.
#pragma once

#include "onepass/attention.hpp"
#include "onepass/context.hpp"
#include "onepass/ops.hpp"
#include "onepass/options.hpp"
#include "onepass/plan.hpp"
#include "onepass/select.hpp"
#include "onepass/status.hpp"
#include "onepass/tensor.hpp"
#include "onepass/version.hpp"
