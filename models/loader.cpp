#include "models/loader.h"
