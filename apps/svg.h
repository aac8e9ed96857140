#pragma once
// The few pieces of SVG that pictures here are made of.

#include <string>

namespace kvikk {

// Begins a document on white ground; "</svg>\n" ends it.
std::string svg_head(double width, double height);
// anchor: "start", "middle" or "end".
std::string text_at(double x, double y, const std::string& anchor, const std::string& text);
std::string line_at(double x1, double y1, double x2, double y2);
std::string rect_at(double x, double y, double width, double height, const std::string& colour);

}  // namespace kvikk
