// Table: cells in aligned columns, for a terminal or for a Markdown page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace onepass::cli {

enum class Align : std::uint8_t { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column; those left out are blank, those too many are dropped.
  void add(std::vector<std::string> cells);

  bool empty() const { return rows_.empty(); }

  std::string text() const;
  std::string markdown() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// How many columns of a terminal UTF-8 text takes: one a code point, which holds for ×, µ and
// every letter that this program prints.
std::size_t display_width(std::string_view text);

// The longest beginning of the text that is no wider than that. Never cuts a character in two.
std::string_view fit(std::string_view text, std::size_t width);

}  // namespace onepass::cli
