#include "cli/files/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

namespace onepass::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "bytes go to and from files unswapped");

constexpr std::string_view kMagic = "\x93NUMPY";

// NumPy writes about a hundred bytes. A longer header is not an array of one of our dtypes.
constexpr std::uint64_t kLongestHeader = 1 << 20;

// Text from a file, made safe to show: a forged header must not drive the user's terminal.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  std::string out = "'";
  for (const unsigned char c : text.substr(0, kLongest)) {
    const bool plain = c >= ' ' && c < 0x7f;
    out += plain ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  }
  return out + (text.size() > kLongest ? "…'" : "'");
}

// As Python prints a tuple, which is also what the header of a file holds.
std::string tuple_text(std::span<const std::int64_t> shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

// Nothing when the shape is negative or its size overflows. A zero does not excuse the other
// dimensions: strides are made of them.
std::optional<std::int64_t> byte_count(std::span<const std::int64_t> shape, DType dtype) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  bool none = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) none = true;
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes)) {
      return std::nullopt;
    }
  }
  return none ? 0 : bytes;
}

// ---- the header: a Python dict literal with three known keys

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Takes what NumPy writes and refuses everything else. After a function returned false, error()
// says why.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  const std::string& error() const { return error_; }

  bool parse(Header& header) {
    constexpr std::string_view kKeys[] = {"descr", "fortran_order", "shape"};
    bool seen[] = {false, false, false};
    if (!expect('{')) return false;
    while (!accept('}')) {
      std::string key;
      if (!string(key) || !expect(':')) return false;
      const auto which =
          static_cast<std::size_t>(std::ranges::find(kKeys, key) - std::begin(kKeys));
      if (which == std::size(kKeys)) return fail(fmt::format("unknown key {}", in_quotes(key)));
      if (std::exchange(seen[which], true)) return fail(fmt::format("key '{}' twice", key));
      if (which == 0 && !string(header.descr)) return false;
      if (which == 1 && !boolean(header.fortran_order)) return false;
      if (which == 2 && !tuple(header.shape)) return false;
      if (accept(',')) continue;
      if (!expect('}')) return false;
      break;
    }
    for (std::size_t i = 0; i < std::size(kKeys); ++i) {
      if (!seen[i]) return fail(fmt::format("key '{}' is missing", kKeys[i]));
    }
    skip_blanks();
    return at_ == text_.size() || unexpected("its end");
  }

 private:
  bool fail(std::string why) {
    error_ = std::move(why);
    return false;
  }

  bool unexpected(std::string_view wanted) {
    return fail(fmt::format("expected {} at byte {}, found {}", wanted, at_,
                            at_ < text_.size() ? in_quotes(text_.substr(at_, 1)) : "its end"));
  }

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n\f", at_), text_.size()); }

  bool accept(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool expect(char c) { return accept(c) || unexpected(fmt::format("'{}'", c)); }

  bool string(std::string& out) {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') return unexpected("a quoted string");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) {
      return fail(fmt::format("the string that begins at byte {} does not end", at_));
    }
    // No escapes: none of the strings that are valid here needs one.
    out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }

  bool boolean(bool& out) {
    skip_blanks();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      out = word == "True";
      return true;
    }
    return unexpected("True or False");
  }

  bool tuple(std::vector<std::int64_t>& out) {
    if (!expect('(')) return false;
    while (!accept(')')) {
      if (out.size() == kMaxRank) {
        return fail(fmt::format("shape has more than {} dimensions", kMaxRank));
      }
      const int dimension = static_cast<int>(out.size());
      if (!extent(dimension, out.emplace_back())) return false;
      if (accept(',')) continue;
      if (out.size() == 1) return unexpected("',' after a lone dimension");
      if (!expect(')')) return false;
      break;
    }
    return true;
  }

  bool extent(int dimension, std::int64_t& out) {
    skip_blanks();
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), out);
    if (error == std::errc::invalid_argument) return unexpected("an integer");
    const std::string_view digits(begin, static_cast<std::size_t>(end - begin));
    if (error == std::errc::result_out_of_range) {
      return fail(fmt::format("shape: dimension {} is {}, which does not fit in 64 bits", dimension,
                              in_quotes(digits)));
    }
    if (out < 0) return fail(fmt::format("shape: dimension {} is {}", dimension, out));
    at_ += digits.size();
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string error_;
};

Status dtype_of(const std::string& path, std::string_view descr, bool bf16_as_u2, DType& out) {
  constexpr std::pair<std::string_view, DType> kKnown[] = {
      {"f2", DType::f16}, {"f4", DType::f32}, {"f8", DType::f64}, {"u2", DType::bf16}};
  std::string_view type = descr;
  char order = '=';
  if (!type.empty() && std::string_view("<>=|").find(type[0]) != std::string_view::npos) {
    order = type[0];
    type.remove_prefix(1);
  }
  const auto* known =
      std::ranges::find(kKnown, type, [](const auto& entry) { return entry.first; });
  std::string why;
  if (known == std::end(kKnown)) {
    why = "is not one of f2, f4, f8 (or u2 that holds bf16, with --bf16)";
  } else if (order == '>') {
    why = fmt::format("is big-endian; save it as array.astype('<{}')", type);
  } else if (known->second == DType::bf16 && !bf16_as_u2) {
    why = "is read only as the bits of bf16, with --bf16";
  } else {
    out = known->second;
    return {};
  }
  return file_error(path, fmt::format("dtype {} {}", in_quotes(descr), why));
}

std::string_view descr_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "<f4";
    case DType::f16: return "<f2";
    case DType::bf16: return "<u2";
    case DType::f64: return "<f8";
    case DType::u8: return "|u1";
    case DType::i32: return "<i4";
    case DType::i64: return "<i8";
  }
  return "|V0";
}

// As numpy.save lays it out: room for the first dimension to grow to 21 digits in place, and a
// length that puts the data on a 64-byte boundary (a whole block of blanks when it already is).
std::string header_of(DType dtype, std::span<const std::int64_t> shape) {
  constexpr std::size_t kPrefix = kMagic.size() + 4;  // and the version, and 16 bits of length
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                 descr_of(dtype), tuple_text(shape));
  if (!shape.empty()) dict.append(21 - fmt::format_int(shape[0]).size(), ' ');
  dict.append(64 - (kPrefix + dict.size() + 1) % 64, ' ');
  dict += '\n';
  const auto length = static_cast<std::uint16_t>(dict.size());
  std::string out(kMagic);
  out += {'\x01', '\x00', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return out + dict;
}

// What the fixed part of a file says: where its header begins and how long it is.
Status read_prefix(const std::string& path, InputFile& file, std::uint64_t& header_length) {
  constexpr std::size_t kShortest = kMagic.size() + 4;
  char prefix[kMagic.size() + 6] = {};
  const std::size_t have = std::min<std::uint64_t>(file.size(), kShortest);
  if (const Status status = file.read(prefix, have); !status.ok()) return status;
  const std::string_view start(prefix, std::min(have, kMagic.size()));
  if (start != kMagic.substr(0, start.size())) {
    return file_error(path, fmt::format("not a .npy file: it begins with {}", in_quotes(start)));
  }
  if (have < kShortest) {
    return file_error(path, fmt::format("truncated: a .npy file has at least {} bytes, this has {}",
                                        kShortest, have));
  }
  const auto byte = [&](std::size_t i) {
    return std::uint64_t{static_cast<unsigned char>(prefix[kMagic.size() + i])};
  };
  const std::uint64_t major = byte(0), minor = byte(1);
  if (major < 1 || major > 3 || minor != 0) {
    return file_error(path, fmt::format("version {}.{} of the .npy format is unknown; 1.0, 2.0 and "
                                        "3.0 are read",
                                        major, minor));
  }
  header_length = byte(2) | byte(3) << 8;
  if (major == 1) return {};
  if (file.size() < sizeof prefix) {
    return file_error(
        path, fmt::format("truncated: version {}.0 has at least {} bytes, this has {}", major,
                          sizeof prefix, file.size()));
  }
  if (const Status status = file.read(prefix + kShortest, 2); !status.ok()) return status;
  header_length |= byte(4) << 16 | byte(5) << 24;
  return {};
}

Status read_header(const std::string& path, InputFile& file, Header& header) {
  std::uint64_t length = 0;
  if (const Status status = read_prefix(path, file, length); !status.ok()) return status;
  if (length > file.left()) {
    return file_error(
        path, fmt::format("truncated: it promises {} bytes of header, the file has {}", length,
                          file.left()));
  }
  if (length > kLongestHeader) {
    return file_error(
        path, fmt::format("a header of {} bytes; at most {} are read", length, kLongestHeader));
  }
  std::string text(length, '\0');
  if (const Status status = file.read(text.data(), length); !status.ok()) return status;
  HeaderParser parser(text);
  if (!parser.parse(header)) return file_error(path, "bad header: " + parser.error());
  return {};
}

}  // namespace

bool AlignedBytes::allocate(std::size_t size) {
  if (size > PTRDIFF_MAX - kAlignment) return false;
  const std::size_t blocks = std::max<std::size_t>((size + kAlignment - 1) / kAlignment, 1);
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, blocks * kAlignment)));
  size_ = data_ ? size : 0;
  return data_ != nullptr;
}

Status Array::make(DType dtype, std::vector<std::int64_t> shape, Array& out) {
  const std::optional<std::int64_t> size = byte_count(shape, dtype);
  if (!size) {
    return {Code::invalid_argument,
            fmt::format("shape {} of {} is negative or overflows", tuple_text(shape), name(dtype))};
  }
  Array made;
  if (!made.data.allocate(static_cast<std::size_t>(*size))) {
    return {Code::out_of_memory, fmt::format("no memory for the {} bytes of shape {} of {}", *size,
                                             tuple_text(shape), name(dtype))};
  }
  made.dtype = dtype;
  made.shape = std::move(shape);
  out = std::move(made);
  return {};
}

Status read_npy(const std::string& path, bool bf16_as_u2, Array& out) {
  InputFile file(path);
  if (const Status status = file.check(); !status.ok()) return status;
  Header header;
  if (const Status status = read_header(path, file, header); !status.ok()) return status;
  DType dtype{};
  if (const Status status = dtype_of(path, header.descr, bf16_as_u2, dtype); !status.ok()) {
    return status;
  }
  if (header.fortran_order && header.shape.size() > 1) {
    return file_error(path,
                      fmt::format("fortran_order is True with shape {}; only C order is read, "
                                  "save it as numpy.ascontiguousarray(array)",
                                  tuple_text(header.shape)));
  }
  const std::optional<std::int64_t> promised = byte_count(header.shape, dtype);
  if (!promised) {
    return file_error(path, fmt::format("shape {} of {} overflows: more than 2^63 - 1 bytes",
                                        tuple_text(header.shape), name(dtype)));
  }
  const auto bytes = static_cast<std::uint64_t>(*promised);
  if (bytes != file.left()) {
    return file_error(
        path, fmt::format("{}: header promises {} bytes of data, the file has {}",
                          bytes > file.left() ? "truncated" : "trailing junk", bytes, file.left()));
  }
  Array read;
  if (const Status status = Array::make(dtype, std::move(header.shape), read); !status.ok()) {
    return {status.code(), fmt::format("{}: {}", path, status.message())};
  }
  if (const Status status = file.read(read.data.data(), bytes); !status.ok()) return status;
  out = std::move(read);
  return {};
}

Status write_npy(const std::string& path, DType dtype, std::span<const std::int64_t> shape,
                 std::span<const std::byte> bytes) {
  const std::optional<std::int64_t> size = byte_count(shape, dtype);
  if (!size || static_cast<std::uint64_t>(*size) != bytes.size()) {
    return {Code::invalid_argument,
            fmt::format("{}: {} bytes are not the data of shape {} of {}", path, bytes.size(),
                        tuple_text(shape), name(dtype))};
  }
  const std::string header = header_of(dtype, shape);
  const std::string_view data(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return write_pieces_atomically(path, {header, data});
}

}  // namespace onepass::cli
