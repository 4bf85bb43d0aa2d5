"""Changes to ONNX files that keep their meaning, and facts about them."""

import random

import numpy as np
import onnx
from onnx import numpy_helper

FLOAT = onnx.TensorProto.FLOAT
DOUBLE = onnx.TensorProto.DOUBLE


def strip_metadata(model):
    """Removes documentation, stack traces and tensor metadata that the exporters leave behind."""
    for part in [model, model.graph, *model.graph.node, *model.graph.initializer,
                 *model.graph.input, *model.graph.output, *model.graph.value_info]:
        part.ClearField("doc_string")
        if part.DESCRIPTOR.fields_by_name.get("metadata_props"):
            part.ClearField("metadata_props")
    model.graph.ClearField("value_info")


def restore(model, state):
    """Puts the values of the PyTorch tensors back into the initializers of the same names."""
    for tensor in model.graph.initializer:
        if tensor.name in state:
            tensor.CopyFrom(numpy_helper.from_array(state[tensor.name].numpy(), tensor.name))


def constants(model):
    """Every stored tensor by name: initializers and outputs of Constant nodes."""
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensors[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return tensors


def map_parameters(model, state):
    """Finds each PyTorch tensor in the file by value: (mapping, other float tensors).

    mapping: name in the file -> {"torch": name, "transpose": bool} and, where the exporter
    reads one tensor through Identity nodes, "identity_of": the tensor stored in its place.
    """
    tensors = constants(model)
    identities = {n.output[0]: n.input[0] for n in model.graph.node
                  if n.op_type == "Identity" and n.input[0] in tensors}
    mapping = {}
    for torch_name, value in state.items():
        if not value.dtype.is_floating_point:
            continue
        value = value.numpy()
        if torch_name in tensors:
            assert np.array_equal(tensors[torch_name], value), torch_name
            mapping[torch_name] = {"torch": torch_name, "transpose": False}
        elif torch_name in identities:
            source = identities[torch_name]
            assert np.array_equal(tensors[source], value), torch_name
            mapping[torch_name] = {"torch": torch_name, "transpose": False, "identity_of": source}
        else:
            found = [(name, tensor.shape != value.shape or not np.array_equal(tensor, value))
                     for name, tensor in tensors.items() if tensor.dtype == np.float32 and
                     (np.array_equal(tensor, value) or np.array_equal(tensor, value.T))]
            assert len(found) == 1, (torch_name, found)
            mapping[found[0][0]] = {"torch": torch_name, "transpose": found[0][1]}
    rest = [name for name, tensor in tensors.items()
            if tensor.dtype == np.float32 and name not in mapping]
    return mapping, rest


def to_double(model):
    """A copy of the model that computes in double with the same stored values."""
    result = onnx.ModelProto()
    result.CopyFrom(model)

    def widen(tensor):
        if tensor.data_type == FLOAT:
            wide = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))

    for tensor in result.graph.initializer:
        widen(tensor)
    for node in result.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                widen(attribute.t)
            if attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = DOUBLE
    for value in [*result.graph.input, *result.graph.output]:
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = DOUBLE
    return result


def scramble(model, constant_names, seed):
    """A copy with every tensor renamed, nodes and initializers in random order and the tensors of
    `constant_names` moved into Constant nodes; also returns old name -> new name."""
    rng = random.Random(seed)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    names = []
    for value in [*graph.input, *graph.output, *graph.initializer]:
        names.append(value.name)
    for node in graph.node:
        names.extend([*node.input, *node.output])
    names = sorted({name for name in names if name})
    numbers = list(range(len(names)))
    rng.shuffle(numbers)
    renamed = {name: f"t{number:03d}" for name, number in zip(names, numbers)}
    renamed[""] = ""
    for value in [*graph.input, *graph.output, *graph.initializer]:
        value.name = renamed[value.name]
    for index, node in enumerate(graph.node):
        node.name = f"n{index}"
        node.input[:] = [renamed[name] for name in node.input]
        node.output[:] = [renamed[name] for name in node.output]

    moved = {renamed[name] for name in constant_names}
    kept = [t for t in graph.initializer if t.name not in moved]
    nodes = list(graph.node)
    for tensor in graph.initializer:
        if tensor.name in moved:
            nodes.append(onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))
    rng.shuffle(kept)
    rng.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)
    kept = [onnx.TensorProto.FromString(t.SerializeToString()) for t in kept]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    del renamed[""]
    return result, renamed
