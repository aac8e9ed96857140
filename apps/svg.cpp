#include "svg.h"

#include "text/numbers.h"

namespace kvikk {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string attribute(const char* name, double value) {
  return std::string(" ") + name + "=\"" + fixed_text(value, 1) + "\"";
}

}  // namespace

std::string svg_head(double width, double height) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + fixed_text(width, 0) +
         "\" height=\"" + fixed_text(height, 0) +
         "\" font-family=\"sans-serif\" font-size=\"12\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return "<text" + attribute("x", x) + attribute("y", y) + " text-anchor=\"" + anchor + "\">" +
         escaped(text) + "</text>\n";
}

std::string line_at(double x1, double y1, double x2, double y2) {
  return "<line" + attribute("x1", x1) + attribute("y1", y1) + attribute("x2", x2) +
         attribute("y2", y2) + " stroke=\"#d0d7de\"/>\n";
}

std::string rect_at(double x, double y, double width, double height, const std::string& colour) {
  return "<rect" + attribute("x", x) + attribute("y", y) + attribute("width", width) +
         attribute("height", height) + " fill=\"" + colour + "\"/>\n";
}

}  // namespace kvikk
