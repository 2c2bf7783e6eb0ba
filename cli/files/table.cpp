#include "cli/files/table.hpp"

#include <algorithm>

namespace onepass::cli {
namespace {

constexpr std::string_view kGap = "  ";

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

std::string padded(std::string_view text, std::size_t width, Align align) {
  const std::size_t used = display_width(text);
  const std::string blanks(width > used ? width - used : 0, ' ');
  return align == Align::right ? blanks + std::string(text) : std::string(text) + blanks;
}

std::vector<std::size_t> widths_of(const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(line[i]));
    }
  }
  return widths;
}

// The titles, then the rows.
std::vector<std::vector<std::string>> lines_of(const std::vector<Column>& columns,
                                               const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns) lines[0].push_back(column.title);
  lines.insert(lines.end(), rows.begin(), rows.end());
  return lines;
}

// A bar would end the cell.
std::string escaped(std::string_view cell) {
  std::string out;
  for (const char c : cell) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::string_view fit(std::string_view text, std::size_t width) {
  for (std::size_t i = 0, used = 0; i < text.size(); ++i) {
    if (begins_character(text[i]) && used++ == width) return text.substr(0, i);
  }
  return text;
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  // A line break in a cell would tear the table.
  for (std::string& cell : cells) std::ranges::replace(cell, '\n', ' ');
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  if (columns_.empty()) return {};
  auto lines = lines_of(columns_, rows_);
  const auto widths = widths_of(lines);
  std::vector<std::string> rule;
  for (const std::size_t width : widths) rule.emplace_back(width, '-');
  lines.insert(lines.begin() + 1, std::move(rule));

  std::string out;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (i > 0) out += kGap;
      out += padded(line[i], widths[i], columns_[i].align);
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    out += '\n';
  }
  return out;
}

std::string Table::markdown() const {
  if (columns_.empty()) return {};
  auto lines = lines_of(columns_, rows_);
  for (auto& line : lines) std::ranges::transform(line, line.begin(), escaped);
  auto widths = widths_of(lines);
  // The line under the titles needs three characters a column.
  for (std::size_t& width : widths) width = std::max<std::size_t>(width, 3);
  std::vector<std::string> rule;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    rule.emplace_back(widths[i], '-');
    if (columns_[i].align == Align::right) rule.back().back() = ':';
  }
  lines.insert(lines.begin() + 1, std::move(rule));

  std::string out;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      out += "| " + padded(line[i], widths[i], columns_[i].align) + ' ';
    }
    out += "|\n";
  }
  return out;
}

}  // namespace onepass::cli
