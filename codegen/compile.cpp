#include "codegen/compile.h"
