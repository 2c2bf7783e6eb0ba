// Whether AddressSanitizer watches, as g++ says it and as clang does.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define ONEPASS_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ONEPASS_ADDRESS_SANITIZER
#endif
#endif
