/* potstill.policy._native: the Python extension around the C kernel. _native.pyi documents the methods. */
#include "extension.h"

#if defined(__linux__) && defined(__has_include)
#if __has_include(<sys/random.h>)
#include <sys/random.h>
#define HAS_GETRANDOM
#endif
#endif

/* Random bytes from the system at each call: no generator state that threads share or a fork duplicates. */
static bool random_bytes(uint8_t *bytes, size_t count)
{
#if defined(HAS_GETRANDOM)
    return getrandom(bytes, count, 0) == (ssize_t)count;
#elif defined(__APPLE__)
    arc4random_buf(bytes, count);
    return true;
#else
    (void)bytes, (void)count;
    return false;
#endif
}

/* 32 hex digits of a version 4 UUID; NULL without an exception if random bytes are unavailable. */
static PyObject *fresh_id(void)
{
    uint8_t bytes[16];
    char digits[2 * sizeof bytes];
    if (!random_bytes(bytes, sizeof bytes)) return NULL;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    for (size_t i = 0; i < sizeof digits; i++) digits[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
    return PyUnicode_DecodeASCII(digits, sizeof digits, NULL);
}

static PyObject *make_decision(const Kernel *self, PyObject *id, const potstill_decision *decision, PyObject *eligible,
                               PyObject *floor)
{
    PyObject *propensity = PyFloat_FromDouble((double)decision->propensity);
    PyObject *allowed = PyList_CheckExact(eligible) ? PyList_AsTuple(eligible) : Py_NewRef(eligible);
    PyObject *result = NULL;
    if (propensity && allowed) {
        PyObject *action = PyTuple_GET_ITEM(self->actions, (Py_ssize_t)decision->action);
        PyObject *fields[] = {NULL, id, action, propensity, self->version, allowed, floor};
        result = call_six(self->decision, fields);
    }
    Py_XDECREF(propensity);
    Py_XDECREF(allowed);
    return result;
}

static PyObject *make_number(const Kernel *self, PyObject *id, const potstill_number *number, const double *interval,
                             PyObject *floor)
{
    PyObject *value = PyFloat_FromDouble(number->value), *density = PyFloat_FromDouble(number->density);
    PyObject *allowed = interval ? Py_BuildValue("(dd)", interval[0], interval[1]) : Py_NewRef(Py_None);
    PyObject *result = NULL;
    if (value && density && allowed) {
        PyObject *fields[] = {NULL, id, value, density, self->version, allowed, floor};
        result = call_six(self->decision, fields);
    }
    Py_XDECREF(value);
    Py_XDECREF(density);
    Py_XDECREF(allowed);
    return result;
}

static PyObject *decide_number_in(const Kernel *self, Workspace *space, PyObject *id, PyObject *eligible,
                                  PyObject *floor)
{
    potstill_text text;
    potstill_number number;
    double smallest, ends[2], *interval = eligible == Py_None ? NULL : ends;
    const bool decided =
        read_text(id, &text) && read_floor(self, floor, &smallest) &&
        (!interval || read_interval(eligible, interval)) &&
        !potstill_decide_number(&self->policy, space->encoded, text, interval, smallest, space->scratch, &number);
    return decided ? make_number(self, id, &number, interval, floor) : Py_NewRef(Py_NotImplemented);
}

static bool decide_in(const Kernel *self, Workspace *space, PyObject *id, PyObject *eligible, PyObject *floor,
                      potstill_decision *decision)
{
    potstill_text text;
    double smallest;
    uint8_t *mask = eligible == Py_None ? NULL : space->eligible;
    return read_text(id, &text) && read_floor(self, floor, &smallest) &&
           (!mask || read_eligible(self, eligible, mask)) &&
           !potstill_decide(&self->policy, space->encoded, text, mask, smallest, space->scratch, decision);
}

static PyObject *decide_action_in(const Kernel *self, Workspace *space, PyObject *id, PyObject *eligible,
                                  PyObject *floor)
{
    potstill_decision decision;
    if (!decide_in(self, space, id, eligible, floor, &decision)) return Py_NewRef(Py_NotImplemented);
    return make_decision(self, id, &decision, eligible, floor);
}

static PyObject *decide_with(const Kernel *self, PyObject *const *args, Py_ssize_t count, ContextReader read)
{
    Workspace space;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "expected 4 arguments, got %zd", count);
    PyObject *eligible = args[2], *floor = args[3];
    PyObject *id = args[1] == Py_None ? fresh_id() : Py_NewRef(args[1]);
    if (!id && PyErr_Occurred()) return NULL;
    if (!workspace_open(&space, self, 1)) return Py_XDECREF(id), PyErr_NoMemory();
    PyObject *result = !id || !read(self, args[0], &space) ? Py_NewRef(Py_NotImplemented)
                       : self->edges                       ? decide_number_in(self, &space, id, eligible, floor)
                                                           : decide_action_in(self, &space, id, eligible, floor);
    workspace_close(&space);
    Py_XDECREF(id);
    return result;
}

static PyObject *Kernel_decide(Kernel *self, PyObject *const *args, Py_ssize_t count)
{
    return decide_with(self, args, count, read_context);
}

static PyObject *Kernel_decide_row(Kernel *self, PyObject *const *args, Py_ssize_t count)
{
    return decide_with(self, args, count, read_row);
}

static PyMethodDef Kernel_methods[] = {
    {"decide", (PyCFunction)(void (*)(void))Kernel_decide, METH_FASTCALL,
     "decide($self, context, id, eligible, floor, /)\n--\n\nChoose an action; NotImplemented for an unusual request."},
    {"decide_row", (PyCFunction)(void (*)(void))Kernel_decide_row, METH_FASTCALL,
     "decide_row($self, values, id, eligible, floor, /)\n--\n\nThe same for a tuple of all values of a context."},
    {"decide_many", (PyCFunction)Kernel_decide_many, METH_VARARGS,
     "decide_many($self, encoded, draws, eligible, floor, actions, propensities, /)\n--\n\n"
     "Choose an action for each encoded context; False if a row was refused."},
    {"decide_numbers", (PyCFunction)Kernel_decide_numbers, METH_VARARGS,
     "decide_numbers($self, encoded, draws, intervals, floor, actions, densities, /)\n--\n\n"
     "Choose a number for each encoded context; False if a row was refused."},
    {"probabilities", (PyCFunction)Kernel_probabilities, METH_VARARGS,
     "probabilities($self, encoded, eligible, floor, out, /)\n--\n\n"
     "The probability of each action in each encoded context; False if a row was refused."},
    {"encode_many", (PyCFunction)Kernel_encode_many, METH_VARARGS,
     "encode_many($self, rows, out, /)\n--\n\nEncode dicts; False if one of them is unusual."},
    {"encode_rows", (PyCFunction)Kernel_encode_rows, METH_VARARGS,
     "encode_rows($self, rows, out, /)\n--\n\nEncode tuples of all values; False if one of them is unusual."},
    {"uniforms", (PyCFunction)Kernel_uniforms, METH_VARARGS,
     "uniforms($self, ids, out, /)\n--\n\nThe draw of each decision; False if an id is unusual."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Kernel_slots[] = {
    {Py_tp_doc, "Kernel(features, layers, actions, activation, salt, floor, version, decision, array, edges, masked)\n--\n\n"
                "A policy in the form of the C kernel."},
    {Py_tp_new, Kernel_new},
    {Py_tp_dealloc, Kernel_dealloc},
    {Py_tp_traverse, Kernel_traverse},
    {Py_tp_methods, Kernel_methods},
    {0, NULL},
};

static PyType_Spec Kernel_spec = {
    .name = "potstill.policy._native.Kernel",
    .basicsize = sizeof(Kernel),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = Kernel_slots,
};

static int module_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &Kernel_spec, NULL);
    const int added = type ? PyModule_AddObjectRef(module, "Kernel", type) : -1;
    Py_XDECREF(type);
    return added < 0 ? -1 : PyModule_AddStringConstant(module, "INSTRUCTIONS", potstill_instructions());
}

static PyMethodDef module_methods[] = {
    {"digests", digests, METH_O, "digests(rows, /)\n--\n\nA number for each tuple; different tuples have different ones."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "potstill.policy._native",
    .m_doc = "Decisions by the C kernel.",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module_definition);
}
