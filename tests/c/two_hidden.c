/* Two shared libraries of C++, each with a copy of gpuipc in it, linked to one program. */
#include <stdio.h>
#include <string.h>

size_t one_fails(size_t length, char *text, size_t size);
size_t two_fails(size_t length, char *text, size_t size);
int one_shares(void);
int two_shares(void);

int main(void) {
    char one[256] = "", two[256] = "";
    size_t statuses = one_fails(384, one, sizeof one) * 100 + two_fails(3, two, sizeof two);
    printf("%zu\n%s\n%s\n", statuses, one, two);
    if (statuses != 2120 || strstr(one, "magic is") == NULL || strstr(two, "length is 3") == NULL) {
        return 1;
    }
    return one_shares() && two_shares() ? 0 : 2;
}
