# The tag queries of E2B's generated Python client. Connection settings come from the environment.
import os
import unittest

from e2b.api.client import AuthenticatedClient
from e2b.api.client.api.tags import (
    get_templates_template_id_tags_count as count,
    get_templates_template_id_tags_exists as exists,
    get_templates_template_id_tags_groups as groups,
    get_templates_template_id_tags_tag_assignments as assignments,
)
from e2b.api.client.api.templates import get_default_templates, patch_templates_template_id
from e2b.api.client.models import GetTemplatesTemplateIDTagsGroupsSort as Sort, TemplateUpdateRequest

client = AuthenticatedClient(base_url=os.environ["E2B_API_URL"], token=os.environ["E2B_API_KEY"], auth_header_name="X-API-KEY", prefix="")
first, second = os.environ["SVC_TEST_BUILDS"].split(",")


class Tags(unittest.TestCase):
    def test_the_number_of_tags(self):
        self.assertEqual(count.sync("tagged", client=client).total, 4)
        self.assertEqual(count.sync_detailed("nobody", client=client).status_code, 404)

    def test_a_tag_exists_or_not(self):
        found = exists.sync("tagged", client=client, tag="stable")
        self.assertEqual((found.exists, found.normalized_tag), (True, "stable"))
        self.assertFalse(exists.sync("tagged", client=client, tag="none").exists)

    def test_the_builds_that_a_tag_named_newest_first_and_page_by_page(self):
        whole = assignments.sync("tagged", "stable", client=client)
        self.assertEqual([str(each.build_id) for each in whole.data], [first, second, first])
        self.assertIsNone(whole.next_cursor)
        self.assertEqual(len({each.assignment_id for each in whole.data}), 3)
        for each in whole.data:
            self.assertGreaterEqual(each.assigned_at, each.build_created_at)
            self.assertGreaterEqual(each.build_finished_at, each.build_created_at)
        page = assignments.sync("tagged", "stable", client=client, limit=2)
        self.assertEqual([str(each.build_id) for each in page.data], [first, second])
        rest = assignments.sync("tagged", "stable", client=client, limit=2, cursor=page.next_cursor)
        self.assertEqual(([str(each.build_id) for each in rest.data], rest.next_cursor), ([first], None))

    def test_groups_of_tags_in_every_order(self):
        orders = {sort: [group.tag for group in groups.sync("tagged", client=client, sort=sort).tags] for sort in Sort}
        self.assertEqual(orders[Sort.NAME_ASC], ["old", "one", "stable", "two"])
        self.assertEqual(orders[Sort.NAME_DESC], ["two", "stable", "one", "old"])
        self.assertEqual(orders[Sort.LATEST_DESC][0], "stable")
        self.assertEqual(orders[Sort.LATEST_ASC], list(reversed(orders[Sort.LATEST_DESC])))
        found = groups.sync("tagged", client=client, search="STA", assignment_limit=1)
        self.assertEqual([(group.tag, len(group.assignments), group.has_more) for group in found.tags], [("stable", 1, True)])

    def test_groups_page_by_page(self):
        listed, cursor = [], None
        while True:
            page = groups.sync("tagged", client=client, tags_limit=3, **({} if cursor is None else {"tags_cursor": cursor}))
            listed += [group.tag for group in page.tags]
            cursor = page.next_cursor
            if cursor is None:
                break
        self.assertEqual(sorted(listed), ["old", "one", "stable", "two"])

    def test_default_templates_and_the_first_version_of_the_update(self):
        self.assertIn("base", [name for template in get_default_templates.sync(client=client) for name in template.names])
        answered = patch_templates_template_id.sync_detailed("tagged", client=client, body=TemplateUpdateRequest(public=True))
        self.assertEqual(answered.status_code, 200)


if __name__ == "__main__":
    unittest.main()
