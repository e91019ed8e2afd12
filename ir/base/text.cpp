#include "ir/base/text.h"
