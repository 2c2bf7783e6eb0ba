// Files that NumPy wrote, files that somebody forged, and places that cannot be written.
#include "cli/files/npy.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace onepass::cli {
namespace {

namespace fs = std::filesystem;
using std::string_literals::operator""s;

void put(const std::string& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

std::string get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file by hand, not by the code under test.
std::string npy(std::string_view dict, std::string_view data, char version = 1) {
  std::string out = "\x93NUMPY"s + version + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    out += static_cast<char>(dict.size() >> (8 * i));
  }
  return out + std::string(dict) + std::string(data);
}

std::string dict(std::string_view descr, std::string_view shape, std::string_view order = "False") {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(order) +
         ", 'shape': " + std::string(shape) + ", }\n";
}

class NpyTest : public testing::Test {
 protected:
  NpyTest() {
    std::string pattern = testing::TempDir() + "onepass-npy-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    directory_ = pattern;
  }
  ~NpyTest() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }

  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      out.push_back(entry.path().filename().string());
    }
    return out;
  }

  // The message without the path that it has to begin with.
  static std::string without(const std::string& path, const Status& status) {
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(status.message().starts_with(path + ": ")) << status.message();
    return status.message().substr(std::min(status.message().size(), path.size() + 2));
  }

  std::string error_of_file(const std::string& file, bool bf16 = false) {
    Array array;
    array.shape = {42};
    const std::string error = without(file, read_npy(file, bf16, array));
    EXPECT_EQ(array.shape, std::vector<std::int64_t>{42}) << "a failed read changed its output";
    return error;
  }

  std::string error_of(std::string_view contents, bool bf16 = false) {
    put(path("in.npy"), contents);
    return error_of_file(path("in.npy"), bf16);
  }

  std::string error_of_dict(std::string_view text) { return error_of(npy(text, "")); }

  std::string directory_;
};

// numpy.save(file, numpy.zeros(…, '<f4')), as NumPy 2 writes it.
constexpr std::string_view kBefore = "\x93NUMPY\x01";

std::string saved_by_numpy(std::string_view text, std::size_t length) {
  std::string header(text);
  header.resize(length - 11, ' ');
  return std::string(kBefore) + '\0' + static_cast<char>(length - 10) + '\0' + header + '\n';
}

TEST_F(NpyTest, WritesWhatNumpyWrites) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::string data = text_of(bytes_of(values));
  const std::int64_t shape[] = {2, 3};
  ASSERT_TRUE(write_npy(path("a.npy"), DType::f32, shape, bytes_of(values)).ok());
  EXPECT_EQ(
      get(path("a.npy")),
      saved_by_numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 128) + data);

  const std::int64_t line[] = {6};
  ASSERT_TRUE(write_npy(path("a.npy"), DType::f32, line, bytes_of(values)).ok());
  EXPECT_EQ(
      get(path("a.npy")),
      saved_by_numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 128) + data);

  ASSERT_TRUE(write_npy(path("a.npy"), DType::f32, {}, bytes_of(values).first(4)).ok());
  EXPECT_EQ(get(path("a.npy")),
            saved_by_numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 128) +
                data.substr(0, 4));

  // About the longest header there is: the shape cannot be larger, nor have more dimensions.
  const std::int64_t longest[] = {0, 9, 9, 9, 9, 9, 9, 1000000000000};
  ASSERT_TRUE(write_npy(path("a.npy"), DType::f32, longest, {}).ok());
  EXPECT_EQ(
      get(path("a.npy")),
      saved_by_numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9, 9, 9, 9, 9, 9, "
                     "1000000000000), }",
                     128));
}

TEST_F(NpyTest, EveryDtypeAndRankComesBack) {
  const std::pair<DType, std::string> kinds[] = {
      {DType::f32, "<f4"}, {DType::f16, "<f2"}, {DType::bf16, "<u2"}, {DType::f64, "<f8"}};
  const std::vector<std::vector<std::int64_t>> shapes = {
      {}, {1}, {5}, {0}, {2, 3}, {4, 0, 3}, {1, 2, 1, 2, 1, 2, 1, 3}};
  for (const auto& [dtype, descr] : kinds) {
    for (const auto& shape : shapes) {
      std::size_t size = size_of(dtype);
      for (const std::int64_t extent : shape) size *= static_cast<std::size_t>(extent);
      std::vector<unsigned char> values(size);
      for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<unsigned char>(i * 37 + 11);
      ASSERT_TRUE(write_npy(path("a.npy"), dtype, shape, bytes_of(values)).ok());
      EXPECT_TRUE(contains(get(path("a.npy")), "'descr': '" + descr + "'"));

      Array array;
      const Status status = read_npy(path("a.npy"), dtype == DType::bf16, array);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(array.dtype, dtype);
      EXPECT_EQ(array.shape, shape);
      EXPECT_EQ(text_of(array.bytes()), text_of(bytes_of(values)));
      ASSERT_NE(array.data.data(), nullptr) << "the ops refuse a null pointer, even of no elements";
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.data.data()) % 64, 0u);
      EXPECT_EQ(array.view().rank, static_cast<int>(shape.size()));
      EXPECT_EQ(array.view().data, array.data.data());
    }
  }
}

TEST_F(NpyTest, OtherDtypesAreWrittenUnderTheirNames) {
  const std::int64_t one[] = {1};
  const std::vector<std::int64_t> value = {7};
  const std::pair<DType, std::string> kinds[] = {
      {DType::u8, "'|u1'"}, {DType::i32, "'<i4'"}, {DType::i64, "'<i8'"}};
  for (const auto& [dtype, descr] : kinds) {
    ASSERT_TRUE(write_npy(path("a.npy"), dtype, one, bytes_of(value).first(size_of(dtype))).ok());
    EXPECT_TRUE(contains(get(path("a.npy")), descr));
  }
}

TEST_F(NpyTest, ReadsEveryFormOfAGoodHeader) {
  const std::string data(24, 'x');
  const std::string good[] = {
      npy(dict("<f4", "(2, 3)"), data),
      npy(dict("=f4", "(2, 3)"), data),
      npy(dict("|f4", "(2, 3)"), data),
      npy(dict("f4", "(2, 3)"), data),
      npy(dict("<f4", "(2, 3)"), data, 2),
      npy(dict("<f4", "(2, 3)"), data, 3),
      npy("{'shape':(2,3,),'fortran_order':False,'descr':'<f4'}", data),
      npy(" {\t\"shape\" : ( 2 , 3 ) , \"descr\" : \"<f4\",\n'fortran_order' : False } \n \n",
          data),
  };
  for (const std::string& contents : good) {
    put(path("in.npy"), contents);
    Array array;
    const Status status = read_npy(path("in.npy"), false, array);
    ASSERT_TRUE(status.ok()) << status.message() << "\n" << contents;
    EXPECT_EQ(array.dtype, DType::f32);
    EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(text_of(array.bytes()), data);
  }
}

TEST_F(NpyTest, FortranOrderIsRefusedWhereItMatters) {
  EXPECT_EQ(error_of(npy(dict("<f4", "(2, 3)", "True"), std::string(24, 'x'))),
            "fortran_order is True with shape (2, 3); only C order is read, save it as "
            "numpy.ascontiguousarray(array)");
  for (const std::string shape : {"(6,)", "()"}) {
    put(path("in.npy"), npy(dict("<f4", shape, "True"), std::string(shape == "()" ? 4 : 24, 'x')));
    Array array;
    EXPECT_TRUE(read_npy(path("in.npy"), false, array).ok()) << shape;
  }
}

TEST_F(NpyTest, DtypesThatAreRefused) {
  const std::string data(4, 'x');
  EXPECT_EQ(error_of(npy(dict(">f4", "(1,)"), data)),
            "dtype '>f4' is big-endian; save it as array.astype('<f4')");
  EXPECT_EQ(error_of(npy(dict(">u2", "(2,)"), data), true),
            "dtype '>u2' is big-endian; save it as array.astype('<u2')");
  EXPECT_EQ(error_of(npy(dict("<u2", "(2,)"), data)),
            "dtype '<u2' is read only as the bits of bf16, with --bf16");
  for (const std::string descr : {"<i4", "|u1", "|b1", "<c8", "|O", "", "<", "<f16", "f"}) {
    EXPECT_EQ(
        error_of(npy(dict(descr, "(1,)"), data), true),
        "dtype '" + descr + "' is not one of f2, f4, f8 (or u2 that holds bf16, with --bf16)");
  }
  EXPECT_EQ(error_of(npy(dict("\x1b[2J", "(1,)"), data)).substr(0, 18), "dtype '\\x1b[2J' is")
      << "a forged name must not reach the terminal as it is";
}

TEST_F(NpyTest, PrefixesThatAreRefused) {
  EXPECT_EQ(error_of("PK\x03\x04 and more of it"),
            "not a .npy file: it begins with 'PK\\x03\\x04 a'");
  EXPECT_EQ(error_of("x"), "not a .npy file: it begins with 'x'");
  EXPECT_EQ(error_of(""), "truncated: a .npy file has at least 10 bytes, this has 0");
  EXPECT_EQ(error_of("\x93NUMPY\x01"), "truncated: a .npy file has at least 10 bytes, this has 7");
  EXPECT_EQ(error_of("\x93NUMPY\x02\x00\x01\x00"s),
            "truncated: version 2.0 has at least 12 bytes, this has 10");
  for (const auto& [version, shown] : {std::pair{"\x00\x00"s, "0.0"},
                                       {"\x04\x00"s, "4.0"},
                                       {"\x01\x01"s, "1.1"},
                                       {"\xff\xff"s, "255.255"}}) {
    EXPECT_EQ(error_of("\x93NUMPY"s + version + std::string(64, ' ')),
              "version "s + shown + " of the .npy format is unknown; 1.0, 2.0 and 3.0 are read");
  }
}

TEST_F(NpyTest, HeaderLengthsThatAreRefused) {
  EXPECT_EQ(error_of("\x93NUMPY\x01\x00\xff\xff{}"s),
            "truncated: it promises 65535 bytes of header, the file has 2");
  EXPECT_EQ(error_of("\x93NUMPY\x02\x00\xff\xff\xff\xff{}"s),
            "truncated: it promises 4294967295 bytes of header, the file has 2");
  // Long, and really there: as a hole, so the test writes nothing.
  put(path("in.npy"), "\x93NUMPY\x02\x00\xff\xff\xff\x7f"s);
  fs::resize_file(path("in.npy"), std::uintmax_t{1} << 32);
  EXPECT_EQ(error_of_file(path("in.npy")),
            "a header of 2147483647 bytes; at most 1048576 are read");
}

TEST_F(NpyTest, SizesThatDoNotMatch) {
  EXPECT_EQ(error_of(npy(dict("<f4", "(1000,)"), std::string(120, 'x'))),
            "truncated: header promises 4000 bytes of data, the file has 120");
  EXPECT_EQ(error_of(npy(dict("<f4", "(2, 3)"), std::string(25, 'x'))),
            "trailing junk: header promises 24 bytes of data, the file has 25");
  EXPECT_EQ(error_of(npy(dict("<f4", "(0, 3)"), "x")),
            "trailing junk: header promises 0 bytes of data, the file has 1");
  EXPECT_EQ(error_of(npy(dict("<f8", "()"), "")),
            "truncated: header promises 8 bytes of data, the file has 0");
  EXPECT_EQ(error_of(npy(dict("<f4", "(1099511627776, 1048575)"), "")),
            "truncated: header promises 4611681620380876800 bytes of data, the file has 0");
}

TEST_F(NpyTest, ShapesThatAreRefused) {
  const std::string after = " of f32 overflows: more than 2^63 - 1 bytes";
  for (const std::string shape :
       {"(2305843009213693952,)", "(9223372036854775807, 9223372036854775807)",
        "(4294967296, 2147483648)", "(0, 9223372036854775807, 9223372036854775807)"}) {
    EXPECT_EQ(error_of_dict(dict("<f4", shape)), "shape " + shape + after);
  }
  EXPECT_EQ(error_of_dict(dict("<f4", "(3, -1)")), "bad header: shape: dimension 1 is -1");
  EXPECT_EQ(
      error_of_dict(dict("<f4", "(9223372036854775808,)")),
      "bad header: shape: dimension 0 is '9223372036854775808', which does not fit in 64 bits");
  EXPECT_EQ(error_of_dict(dict("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)")),
            "bad header: shape has more than 8 dimensions");
  EXPECT_EQ(error_of_dict(dict("<f4", "(3)")),
            "bad header: expected ',' after a lone dimension at byte 52, found ')'");
  EXPECT_EQ(error_of_dict(dict("<f4", "3")), "bad header: expected '(' at byte 50, found '3'");
  EXPECT_EQ(error_of_dict(dict("<f4", "(3.5,)")),
            "bad header: expected ',' after a lone dimension at byte 52, found '.'");
  EXPECT_EQ(error_of_dict(dict("<f4", "(,)")),
            "bad header: expected an integer at byte 51, found ','");
  EXPECT_EQ(error_of_dict(dict("<f4", "(2, 3]")), "bad header: expected ')' at byte 55, found ']'");
}

TEST_F(NpyTest, DictsThatAreRefused) {
  EXPECT_EQ(error_of_dict(""), "bad header: expected '{' at byte 0, found its end");
  EXPECT_EQ(error_of_dict("{}"), "bad header: key 'descr' is missing");
  EXPECT_EQ(error_of_dict("{'descr': '<f4', 'shape': ()}"),
            "bad header: key 'fortran_order' is missing");
  EXPECT_EQ(error_of_dict("{'descr': '<f4', 'fortran_order': False}"),
            "bad header: key 'shape' is missing");
  EXPECT_EQ(error_of_dict("{'shape': (), 'shape': ()}"), "bad header: key 'shape' twice");
  EXPECT_EQ(error_of_dict("{'order': 'C'}"), "bad header: unknown key 'order'");
  EXPECT_EQ(error_of_dict("{'descr': [('a', '<f4')]}"),
            "bad header: expected a quoted string at byte 10, found '['");
  EXPECT_EQ(error_of_dict("{'descr': '<f4"),
            "bad header: the string that begins at byte 10 does not end");
  EXPECT_EQ(error_of_dict("{'fortran_order': 0}"),
            "bad header: expected True or False at byte 18, found '0'");
  EXPECT_EQ(error_of_dict("{'descr' '<f4'}"), "bad header: expected ':' at byte 9, found '''");
  EXPECT_EQ(error_of_dict("{'descr': '<f4' 'shape': ()}"),
            "bad header: expected '}' at byte 16, found '''");
  EXPECT_EQ(error_of_dict("{,}"), "bad header: expected a quoted string at byte 1, found ','");
  EXPECT_EQ(error_of_dict("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x"),
            "bad header: expected its end at byte 54, found 'x'");
  EXPECT_EQ(error_of_dict("{'descr': '<f4', 'fortran_order': False, 'shape': ()}\0"s),
            "bad header: expected its end at byte 53, found '\\x00'");
}

TEST_F(NpyTest, EveryTruncationIsAnError) {
  for (const char version : {1, 2}) {
    const std::string whole = npy(dict("<f4", "(3, 4)"), std::string(48, 'x'), version);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      EXPECT_TRUE(contains(error_of(whole.substr(0, length)), "truncated")) << length;
    }
  }
}

TEST_F(NpyTest, EveryForgedByteIsAnErrorOrHarmless) {
  const std::string good = npy(dict("<f4", "(3, 4)"), std::string(48, 'x'), 2);
  put(path("in.npy"), good);
  const int file = ::open(path("in.npy").c_str(), O_WRONLY);
  ASSERT_GE(file, 0);
  for (off_t at = 0; at < static_cast<off_t>(good.size()) - 48; ++at) {
    const char original = good[static_cast<std::size_t>(at)];
    for (int value = 0; value < 256; ++value) {
      const char forged = static_cast<char>(value);
      ASSERT_EQ(::pwrite(file, &forged, 1, at), 1);
      Array array;
      const Status status = read_npy(path("in.npy"), true, array);
      if (!status.ok()) {
        EXPECT_NE(forged, original);
        EXPECT_TRUE(status.message().starts_with(path("in.npy") + ": ")) << status.message();
        continue;
      }
      // For example '=' for '<', or a tab for a blank: the same array.
      EXPECT_EQ(array.shape, (std::vector<std::int64_t>{3, 4})) << at << " " << value;
      EXPECT_EQ(array.dtype, DType::f32) << at << " " << value;
      EXPECT_EQ(array.data.size(), 48u);
    }
    ASSERT_EQ(::pwrite(file, &original, 1, at), 1);
  }
  ::close(file);
}

TEST_F(NpyTest, InputsThatAreNotFiles) {
  EXPECT_EQ(error_of_file(path("missing.npy")), "cannot open: No such file or directory");
  EXPECT_EQ(error_of_file(directory_), "cannot read: Is a directory");
  EXPECT_EQ(error_of_file("/dev/null"), "cannot read: not a regular file");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of_file(path("pipe")), "cannot read: not a regular file");
  Array array;
  EXPECT_EQ(read_npy("", false, array).message(), "'': cannot open: No such file or directory");
}

TEST_F(NpyTest, MakeChecksItsShape) {
  Array array;
  EXPECT_EQ(Array::make(DType::f32, {2, -1}, array).message(),
            "shape (2, -1) of f32 is negative or overflows");
  EXPECT_FALSE(Array::make(DType::f64, {std::int64_t{1} << 60}, array).ok());
  ASSERT_TRUE(Array::make(DType::f64, {3, 5}, array).ok());
  EXPECT_EQ(array.data.size(), 120u);
}

TEST_F(NpyTest, WriteChecksItsSize) {
  const std::vector<float> values(5);
  const std::int64_t shape[] = {2, 3};
  EXPECT_EQ(without(path("a.npy"), write_npy(path("a.npy"), DType::f32, shape, bytes_of(values))),
            "20 bytes are not the data of shape (2, 3) of f32");
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace onepass::cli
