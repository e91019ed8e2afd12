#include "ir/graph/builder.h"
