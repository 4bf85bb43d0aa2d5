// Contraction: dot-general named by letters.
#include <algorithm>
#include <array>

#include "ir/ops/common.h"

namespace hyper::ir {
namespace {

struct DotSpec {
  std::string a;
  std::string b;
  std::string y;
};

bool Has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

Result<DotSpec> ParseSpec(const std::string& spec) {
  const size_t comma = spec.find(',');
  const size_t arrow = spec.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    return InvalidArgument("spec '" + spec + "' is not of the form 'bmk,bkn->bmn'");
  }
  DotSpec s{spec.substr(0, comma), spec.substr(comma + 1, arrow - comma - 1),
            spec.substr(arrow + 2)};
  for (const std::string& operand : {s.a, s.b, s.y}) {
    for (char letter : operand) {
      const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
      if (!is_letter) {
        return InvalidArgument("spec '" + spec + "' holds '" + letter + "', expected letters");
      }
      if (std::count(operand.begin(), operand.end(), letter) > 1) {
        return InvalidArgument("letter '" + std::string(1, letter) + "' occurs twice in '" +
                               operand + "' of spec '" + spec + "'");
      }
      const int uses = Has(s.a, letter) + Has(s.b, letter) + Has(s.y, letter);
      if (uses < 2) {
        return InvalidArgument("letter '" + std::string(1, letter) + "' of spec '" + spec +
                               "' occurs in one operand only, expected two or three");
      }
    }
  }
  return s;
}

InferResult InferDot(Types in, const Attributes& a) {
  HYPER_ASSIGN_OR_RETURN(const DotSpec s, ParseSpec(a.String("spec")));
  HYPER_RETURN_IF_ERROR(ExpectNumeric(in, 0));
  HYPER_RETURN_IF_ERROR(ExpectDType(in, 1, in[0].dtype, "as input 0"));
  HYPER_RETURN_IF_ERROR(ExpectRank(in, 0, static_cast<int>(s.a.size())));
  HYPER_RETURN_IF_ERROR(ExpectRank(in, 1, static_cast<int>(s.b.size())));
  for (size_t d = 0; d < s.b.size(); ++d) {
    const size_t at = s.a.find(s.b[d]);
    if (at == std::string::npos) continue;
    HYPER_RETURN_IF_ERROR(
        ExpectDim(in, 1, static_cast<int>(d), in[0].dims[at],
                  "letter '" + std::string(1, s.b[d]) + "' of spec '" + a.String("spec") + "'"));
  }
  TensorType y{in[0].dtype, {}};
  for (char letter : s.y) {
    const size_t at = s.a.find(letter);
    y.dims.push_back(at != std::string::npos ? in[0].dims[at] : in[1].dims[s.b.find(letter)]);
  }
  return std::vector<TensorType>{y};
}

// Every letter occurs in two or three of a, b, y, so swapping roles gives valid specs again.
Status DotGradient(const GradientContext& c) {
  HYPER_ASSIGN_OR_RETURN(const DotSpec s, ParseSpec(c.node.attributes.String("spec")));
  const ValueId g = c.output_grads[0];
  if (c.wanted[0]) {
    c.input_grads[0] = c.builder.Dot(s.y + "," + s.b + "->" + s.a, g, c.node.inputs[1]);
  }
  if (c.wanted[1]) {
    c.input_grads[1] = c.builder.Dot(s.a + "," + s.y + "->" + s.b, c.node.inputs[0], g);
  }
  return Status::Ok();
}

ShardingFactors DotSharding(Types, Types, const Attributes& a) {
  const Result<DotSpec> s = ParseSpec(a.String("spec"));
  HYPER_CHECK(s.ok(), s.status().message());
  ShardingFactors f{{s->a, s->b}, {s->y}, "", "", "sum"};
  for (char letter : s->a) {
    if (!Has(s->y, letter)) f.reduced += letter;
  }
  return f;
}

OpCost DotCost(Types in, Types out, const Attributes& a) {
  const Result<DotSpec> s = ParseSpec(a.String("spec"));
  HYPER_CHECK(s.ok(), s.status().message());
  double flops = 2 * static_cast<double>(out[0].elements());
  for (size_t d = 0; d < s->a.size(); ++d) {
    if (!Has(s->y, s->a[d])) flops *= static_cast<double>(in[0].dims[d]);
  }
  return MemoryCost(in, out, flops);
}

}  // namespace

void RegisterContractionOps(OpRegistry& registry) {
  registry.Add({
      .name = "dot",
      .family = "contraction",
      .summary = "sum over the letters that the output lacks of a * b; letters in a, b and y are "
                 "batch, in a and b contracted, in one input and y free",
      .min_inputs = 2,
      .max_inputs = 2,
      .outputs = 1,
      .attributes = {{"spec", AttributeKind::kString,
                      "dims by letters, as 'bmk,bkn->bmn'; no letter in one operand only",
                      std::nullopt}},
      .infer = InferDot,
      .gradient = GradientFunction(DotGradient),
      .sharding = ShardingFunction(DotSharding),
      .cost = DotCost,
      .saved = SavedForBackward{{0, 1}, {}},
      .in_place = std::vector<InPlaceRule>{},
      .accumulates = true,
      .cpu_kernels = {"onednn.matmul", "generated", "reference"},
  });
}

}  // namespace hyper::ir
